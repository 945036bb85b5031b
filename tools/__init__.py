"""What is needed to build, check and measure the project, and never to run it."""
