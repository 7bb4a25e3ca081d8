//! `memcached-load`: a closed-loop load for memcached's text protocol with the shape and the defaults of
//! memtier_benchmark (`memtier_benchmark -P memcache_text`; <https://github.com/RedisLabs/memtier_benchmark>), which Debian
//! lacks.
//!
//! Every thread keeps `--pipeline` requests in flight on each of its `--clients` connections. Only what completes within the
//! window counts, and anything but the answer that a request takes ends the run with an error.

mod connection;
mod drive;
mod plan;
mod preload;
mod protocol;
#[cfg(test)]
mod tests;

use crate::arguments::Arguments;
use crate::error::trying;
use crate::latency::Latencies;
use crate::{ToolError, tcp};
use connection::Connection;
use drive::{Run, Tally, Window};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use plan::{Plan, Ratio};
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Duration;
use topolab_model::SplitMix64;

/// The percentiles that are printed.
const PRINTED: [(&str, f64); 6] =
    [("p50", 50.0), ("p75", 75.0), ("p90", 90.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];
/// Open files beside the connections: standard streams, one epoll per thread, the preload.
const OTHER_FILES: usize = 64;

/// The parsed flags.
struct Shape {
    address: SocketAddr,
    threads: usize,
    clients: usize,
    ratio: Ratio,
    data_size: usize,
    keys: u64,
    pipeline: usize,
    duration: Duration,
    warmup: Duration,
    preload: bool,
    seed: u64,
}

impl Shape {
    fn new(words: &[String]) -> Result<Self, ToolError> {
        let mut given = Arguments::new(words)?;
        let ratio = Ratio { sets: 1, gets: 10 };
        let shape = Self {
            address: given.address("address", Arguments::local(11211))?,
            threads: given.count("threads", 1..=1024, Some(4))?,
            clients: given.count("clients", 1..=10_000, Some(50))?,
            ratio: given.take("ratio", Some(ratio), "SETS:GETS, as in 1:10", Ratio::parse)?,
            // memcached's own limit is an item of 1 MiB, with key and header.
            data_size: given.count("data-size", 1..=1_000_000, Some(32))?,
            keys: given.number("keys", 1..=1_000_000_000, Some(10_000))?,
            pipeline: given.count("pipeline", 1..=10_000, Some(1))?,
            duration: Duration::from_millis(given.number("duration-ms", 1..=3_600_000, None)?),
            warmup: Duration::from_millis(given.number("warmup-ms", 0..=3_600_000, Some(0))?),
            preload: given.yes_or_no("preload", true)?,
            seed: given.number("seed", 0..=u64::MAX, Some(1))?,
        };
        given.finish()?;
        Ok(shape)
    }
}

/// Runs the load once.
pub(crate) fn run(words: &[String]) -> Result<Value, ToolError> {
    let shape = Shape::new(words)?;
    // What memtier stores unless it is asked for random data.
    let value = vec![b'x'; shape.data_size];
    if shape.preload {
        preload::preload(shape.address, shape.keys, &value)?;
    }
    let mut connections = connect(&shape)?;
    let (window, stop) = (OnceLock::new(), AtomicBool::new(false));
    let run = Run { address: shape.address, value: &value, window, stop };
    let tally = measure(&run, &mut connections, &shape)?;
    report(&shape, &tally)
}

/// Opens every connection, those of each thread by themselves.
fn connect(shape: &Shape) -> Result<Vec<Vec<Connection>>, ToolError> {
    let connections = shape.threads * shape.clients;
    allow_files(connections + shape.threads + OTHER_FILES)?;
    // A stream of its own for every connection, whatever the others draw.
    let mut seeds = SplitMix64::new(shape.seed);
    let mut open = |_: usize| {
        let stream = tcp::connect(shape.address, None)?;
        let plan = Plan::new(shape.ratio, shape.keys, seeds.bits());
        trying(format!("connect to {}", shape.address), Connection::new(stream, plan, shape.pipeline))
    };
    (0..shape.threads).map(|_| (0..shape.clients).map(&mut open).collect()).collect()
}

/// Raises the limit of open files when it is too low, as memtier does.
fn allow_files(needed: usize) -> Result<(), ToolError> {
    let needed = needed as u64;
    let (soft, hard) = trying("getrlimit", getrlimit(Resource::RLIMIT_NOFILE))?;
    if soft >= needed {
        return Ok(());
    }
    let what = format!("raise the limit of open files from {soft} to {needed}; ask for fewer --threads or --clients");
    trying(what, setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed)))
}

/// Runs one thread per list of connections and adds up what they counted.
fn measure(run: &Run<'_>, connections: &mut [Vec<Connection>], shape: &Shape) -> Result<Tally, ToolError> {
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for own in connections {
            match Builder::new().name("load".into()).spawn_scoped(scope, move || run.drive(own)) {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    // The scope waits for the threads that are there.
                    run.stop.store(true, Ordering::Relaxed);
                    return trying("start a thread", Err(e));
                }
            }
        }
        // Set when every thread runs: what they do before is part of the warmup.
        let _ = run.window.set(Window::after(shape.warmup, shape.duration));
        let mut all = Tally::new()?;
        for thread in threads {
            all.add(&thread.join().map_err(|_| ToolError::Panicked)??)?;
        }
        Ok(all)
    })
}

fn report(shape: &Shape, tally: &Tally) -> Result<Value, ToolError> {
    let mut all = Latencies::new()?;
    all.add(&tally.sets)?;
    all.add(&tally.gets)?;
    if all.len() == 0 {
        return Err(ToolError::NothingMeasured(format!(
            "no request was answered within --duration-ms {}; {} may hang, or the time is too short",
            shape.duration.as_millis(),
            shape.address
        )));
    }
    let seconds = shape.duration.as_secs_f64();
    let of_kind = |latencies: &Latencies| -> Option<Map<String, Value>> {
        (latencies.len() > 0).then(|| latencies.summary_ms(&PRINTED))
    };
    Ok(json!({
        "tool": "memcached-load",
        "ops": all.len(),
        "ops_per_s": all.len() as f64 / seconds,
        "sets": tally.sets.len(),
        "gets": tally.gets.len(),
        "misses": tally.misses,
        "duration_s": seconds,
        "threads": shape.threads,
        "connections": shape.threads * shape.clients,
        "latency_ms": all.summary_ms(&PRINTED),
        "latency_ms_sets": of_kind(&tally.sets),
        "latency_ms_gets": of_kind(&tally.gets),
        "histogram": all.encoded()?,
    }))
}
