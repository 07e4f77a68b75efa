//! DBOS Rust: `dbos-bench URL worker | enqueue COUNT | direct IN_FLIGHT | latency COUNT`.

use std::time::{Duration, Instant};

use dbos::{Config, DBOS, Enqueue, QueueConflict, QueueOptions, StartOptions};

const QUEUE: &str = "bench";
const STEPS: u64 = 5;
const CONNECTIONS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(20);

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().collect();
    let (url, mode) = (&arguments[1], arguments[2].as_str());
    let number: u64 = arguments.get(3).map_or(Ok(0), |text| text.parse())?;

    let mut config = Config::new("bench", url.clone());
    config.app_version = Some("1".into());
    config.executor_id = Some("bench".into());
    config.max_connections = CONNECTIONS;
    if mode == "enqueue" {
        config.listen_queues = Some(Vec::new());
    }
    let engine = DBOS::new(config);
    let chain = engine.register_workflow("chain", |steps: u64| async move {
        for number in 0..steps {
            dbos::step("noop", move || async move { Ok::<u64, dbos::Error>(number) }).await?;
        }
        Ok::<u64, dbos::Error>(steps)
    })?;
    engine.launch().await?;

    match mode {
        "worker" => {
            engine.register_queue(QUEUE, QueueOptions::default(), QueueConflict::AlwaysUpdate).await?;
            println!("READY");
            std::future::pending::<()>().await;
        }
        "enqueue" => {
            engine.register_queue(QUEUE, QueueOptions::default(), QueueConflict::AlwaysUpdate).await?;
            for _ in 0..number {
                let options = StartOptions { queue: Some(Enqueue::new(QUEUE)), ..Default::default() };
                chain.start_with(STEPS, options).await?;
            }
            println!("READY");
        }
        "direct" => {
            for _ in 0..number {
                let chain = chain.clone();
                tokio::spawn(async move {
                    loop {
                        let handle = chain.start(STEPS).await.expect("a workflow starts");
                        handle.result().await.expect("a workflow ends");
                    }
                });
            }
            println!("READY");
            std::future::pending::<()>().await;
        }
        "latency" => {
            println!("READY");
            for _ in 0..number {
                let started = Instant::now();
                chain.start(STEPS).await?.result().await?;
                println!("{}", started.elapsed().as_secs_f64() * 1000.0);
                tokio::time::sleep(PAUSE).await;
            }
        }
        _ => return Err(format!("no such mode: {mode}").into()),
    }
    std::process::exit(0);
}
