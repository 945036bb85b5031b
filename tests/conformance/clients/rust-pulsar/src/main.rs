// Logins of the Rust client: each line of JSON is an attempt with one message, answered by "ok", or
// by "refused" and the client's error.
use std::io::BufRead;
use std::time::Duration;

use futures::TryStreamExt;
use pulsar::{
    consumer::InitialPosition, Authentication, ConnectionRetryOptions, Consumer, ConsumerOptions,
    OperationRetryOptions, Pulsar, SubType, TokioExecutor,
};
use serde_json::Value;

type Problem = Box<dyn std::error::Error>;

async fn attempt(given: &Value) -> Result<(), Problem> {
    let text = |name: &str| given[name].as_str().unwrap_or("").to_string();
    let connections = ConnectionRetryOptions {
        max_retries: 1,
        min_backoff: Duration::from_millis(10),
        max_backoff: Duration::from_millis(20),
        ..Default::default()
    };
    let operations = OperationRetryOptions {
        max_retries: Some(1),
        ..Default::default()
    };
    let mut builder = Pulsar::builder(text("url"), TokioExecutor)
        .with_connection_retry_options(connections)
        .with_operation_retry_options(operations);
    if !text("method").is_empty() {
        builder = builder.with_auth(Authentication {
            name: text("method"),
            data: text("secret").into_bytes(),
        });
    }
    if !text("authority").is_empty() {
        builder = builder.with_certificate_chain_file(text("authority"))?;
    }
    let client = builder.build().await?;
    let mut producer = client.producer().with_topic(text("topic")).build().await?;
    let message = text("message");
    producer.send_non_blocking(message.clone()).await?.await?;
    let mut consumer: Consumer<String, _> = client
        .consumer()
        .with_topic(text("topic"))
        .with_subscription("rust")
        .with_subscription_type(SubType::Exclusive)
        .with_options(ConsumerOptions::default().with_initial_position(InitialPosition::Earliest))
        .build()
        .await?;
    loop {
        let found = consumer.try_next().await?.ok_or("the consumer ended")?;
        consumer.ack(&found).await?;
        if found.deserialize()? == message {
            return Ok(());
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Problem> {
    for line in std::io::stdin().lock().lines() {
        match attempt(&serde_json::from_str(&line?)?).await {
            Ok(()) => println!("ok"),
            Err(problem) => println!("refused {}", problem.to_string().replace('\n', " ")),
        }
    }
    Ok(())
}
