//! Sends the temperature of some home ten times a second, until it is interrupted.
#![allow(clippy::print_stdout)]

use std::{error::Error, time::Duration};

use partita::{Event, eventhubs::Route, shutdown_signal};
use starter::hub;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let producer = hub()?.producer();
    let mut every = tokio::time::interval(Duration::from_millis(100));
    let stop = shutdown_signal();
    tokio::pin!(stop);
    for number in 0.. {
        tokio::select! {
            _ = every.tick() => {}
            () = &mut stop => {
                println!("sent {number} events");
                break;
            }
        }
        let home = format!("home-{}", number % 10);
        let degrees = 18.0 + f64::from(number * 7 % 30) / 2.0;
        // Events of a key go to one partition, in order.
        producer.send_event(Route::key(home), Event::builder(degrees.to_string())).await?;
    }
    Ok(())
}
