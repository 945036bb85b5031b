"""`trilogue demo`: real data through all three protocols and Spark, with its result checked."""
