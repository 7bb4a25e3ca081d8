//! `engine-ipc`: clients, an API front, an engine core and its worker ranks, the shape of vLLM's server.
//!
//! | here | vLLM |
//! |---|---|
//! | `clients`, each with one request at a time | `vllm bench serve --max-concurrency` |
//! | `front_threads`, epoll over TCP | `--api-server-count`, asyncio over HTTP |
//! | a Unix socket from each front thread to the core | ZeroMQ over `ipc://` |
//! | `batch` | `--max-num-seqs` |
//! | `ranks`: shared memory and a futex | `--tensor-parallel-size`; shm_broadcast's `MessageQueue` |
//! | `tokens` of each request | `--random-output-len` |
//! | `step_us` ± `jitter_percent`: burned by each rank for a step | a forward pass, launched and waited for |
//! | `tokenise_us`, `detokenise_us`: burned by the front for a request, for a token | the tokenizer |
//! | `client_node`; -1: clients run anywhere | `numactl` before the benchmark |
//!
//! A step gives every running request one token. Latencies are what the clients see: the time to the first token, the gap
//! between two, and the time of a whole request (`inference_time_s`, its mean).

mod broadcast;
mod client;
mod core;
mod front;
mod message;

use self::broadcast::Broadcast;
use self::client::Seen;
use crate::burn::Burner;
use crate::machine::{Machine, Watch};
use crate::params::Params;
use crate::report::{Report, Unit};
use crate::rng::SplitMix64;
use crate::threads::joined;
use crate::window::Window;
use crate::{ModelError, trying};
use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use topolab_wire::{CpuSet, ModelOrder, ModelRecord};

/// The most clients. A Unix socket takes at least so many small messages that nobody has read (its default buffer over the
/// kernel's bookkeeping for each, net/core/sock.c), so that a front never waits for the core to take a request.
const MOST_CLIENTS: i64 = 256;

/// The resolved parameters.
#[derive(Debug)]
struct Shape {
    clients: usize,
    front_threads: usize,
    ranks: u32,
    batch: usize,
    tokens: u64,
    step_ns: u64,
    jitter_percent: u64,
    tokenise_ns: u64,
    detokenise_ns: u64,
    duration: Duration,
    client_cpus: Option<CpuSet>,
    seed: u64,
}

impl Shape {
    fn new(order: &ModelOrder) -> Result<Self, ModelError> {
        let mut params = Params::new(&order.params);
        let clients = params.take_count("clients", 1..=MOST_CLIENTS)?;
        let client_node = params.take_node("client_node", order.nodes.len())?;
        let shape = Self {
            clients,
            // A front thread without a client would have nothing to do.
            front_threads: params.take_count("front_threads", 1..=MOST_CLIENTS)?.min(clients),
            ranks: u32::try_from(params.take("ranks", 1..=4096)?).unwrap_or(u32::MAX),
            batch: params.take_count("batch", 1..=MOST_CLIENTS)?,
            tokens: params.take("tokens", 1..=1_000_000)?,
            step_ns: params.take("step_us", 0..=10_000_000)? * 1000,
            jitter_percent: params.take("jitter_percent", 0..=100)?,
            tokenise_ns: params.take("tokenise_us", 0..=1_000_000)? * 1000,
            detokenise_ns: params.take("detokenise_us", 0..=1_000_000)? * 1000,
            duration: Duration::from_millis(params.take("duration_ms", 1..=600_000)?),
            client_cpus: client_node.and_then(|node| order.nodes.get(node).cloned()),
            seed: order.seed,
        };
        params.finish()?;
        match &shape.client_cpus {
            Some(cpus) if cpus.is_empty() => {
                Err(ModelError::NothingMeasured("client_node has no CPUs to pin the clients to".into()))
            }
            Some(_) | None => Ok(shape),
        }
    }

    /// How far a step's time may be off, either way.
    fn jitter_ns(&self) -> u64 {
        self.step_ns * self.jitter_percent / 100
    }
}

/// Every connection, held until all threads have ended.
struct Links {
    /// The clients' ends, by front thread and then by connection.
    clients: Vec<Vec<TcpStream>>,
    /// The front threads' ends, in the same order.
    fronts: Vec<Vec<TcpStream>>,
    /// Each front thread's end to the core.
    to_core: Vec<UnixStream>,
    /// The core's ends.
    core: Vec<UnixStream>,
}

impl Links {
    fn open(shape: &Shape) -> Result<Self, ModelError> {
        let listener = trying("listen on loopback", TcpListener::bind(("127.0.0.1", 0)))?;
        let address = trying("listen on loopback", listener.local_addr())?;
        let mut links = Self { clients: vec![], fronts: vec![], to_core: vec![], core: vec![] };
        for front in 0..shape.front_threads {
            let (to_core, core) = trying("a pair of Unix sockets", UnixStream::pair())?;
            links.to_core.push(to_core);
            links.core.push(core);
            let (mut clients, mut fronts) = (Vec::new(), Vec::new());
            // Dealt out in turn.
            for _ in (front..shape.clients).step_by(shape.front_threads) {
                let near = trying("connect", TcpStream::connect(address))?;
                let (far, _) = trying("accept", listener.accept())?;
                for end in [&near, &far] {
                    trying("TCP_NODELAY", end.set_nodelay(true))?;
                }
                clients.push(near);
                fronts.push(far);
            }
            links.clients.push(clients);
            links.fronts.push(fronts);
        }
        Ok(links)
    }
}

/// What tells the threads that the run is over.
#[derive(Default)]
struct Stops {
    core_and_clients: AtomicBool,
    /// Later than the core, which must not wait for a front that no longer reads.
    fronts: AtomicBool,
    broadcast: Broadcast,
}

/// Ends all threads when it goes out of scope, whatever they wait for.
struct EndOnDrop<'a>(&'a Stops, &'a Links);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        let Self(stops, links) = self;
        stops.core_and_clients.store(true, Ordering::SeqCst);
        stops.fronts.store(true, Ordering::SeqCst);
        stops.broadcast.end();
        // Who has hung up already does not mind.
        for end in links.clients.iter().flatten() {
            let _ = end.shutdown(Shutdown::Both);
        }
        for end in &links.core {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

/// Runs the workload once.
pub(crate) fn run(order: &ModelOrder) -> Result<ModelRecord, ModelError> {
    let shape = Shape::new(order)?;
    let (seen, steps, machine) = load(&shape, Watch::start, |watch| watch.stop(order))?;
    record(&shape, seen, steps, &machine, order)
}

/// Runs the load, measured between `start` and `stop`; returns what clients saw and the steps of the core.
fn load<W, M>(
    shape: &Shape,
    start: impl FnOnce() -> Result<W, ModelError>,
    stop: impl FnOnce(W) -> Result<M, ModelError>,
) -> Result<(Seen, u64, M), ModelError> {
    let links = Links::open(shape)?;
    let (stops, window) = (Stops::default(), Window::default());
    let (links, stops, window) = (&links, &stops, &window);
    std::thread::scope(|scope| {
        let ending = EndOnDrop(stops, links);
        let ranks: Vec<_> =
            (0..shape.ranks).map(|rank| scope.spawn(move || compute(shape, rank, &stops.broadcast))).collect();
        let core = scope.spawn(move || {
            core::serve(&links.core, shape.batch, shape.ranks, &stops.broadcast, &stops.core_and_clients)
        });
        let fronts = links.fronts.iter().zip(&links.to_core);
        let fronts: Vec<_> = fronts
            .map(|(clients, core)| scope.spawn(move || front::serve(shape, clients, core, &stops.fronts)))
            .collect();
        let watch = start()?;
        window.open_until(std::time::Instant::now() + shape.duration);
        let clients = links.clients.iter().flatten();
        let clients: Vec<_> =
            clients.map(|end| scope.spawn(move || client::ask(shape, end, &stops.core_and_clients, window))).collect();
        std::thread::sleep(shape.duration);
        let measured = stop(watch)?;
        stops.core_and_clients.store(true, Ordering::SeqCst);
        let steps = joined("core", core)?;
        stops.fronts.store(true, Ordering::SeqCst);
        for front in fronts {
            joined("front", front)?;
        }
        drop(ending);
        for rank in ranks {
            joined("rank", rank)?;
        }
        let mut seen = Seen::default();
        for client in clients {
            seen.add(joined("client", client)?);
        }
        Ok((seen, steps, measured))
    })
}

/// A worker rank.
fn compute(shape: &Shape, rank: u32, broadcast: &Broadcast) -> io::Result<()> {
    let jitter = shape.jitter_ns();
    let mut rng = SplitMix64::new(shape.seed ^ (u64::from(rank) << 32));
    let mut seen = 0;
    let mut burner = Burner::new(shape.step_ns + jitter);
    while let Some(number) = broadcast.next(seen)? {
        seen = number;
        let step = shape.step_ns - jitter + rng.below(2 * jitter + 1);
        if let Ok(burner) = &mut burner {
            burner.burn(step)?;
        }
        // Also without a device to burn with, or the core would wait for ever; the error is told at the end.
        broadcast.answer()?;
    }
    burner.map(drop)
}

fn record(
    shape: &Shape,
    seen: Seen,
    steps: u64,
    machine: &Machine,
    order: &ModelOrder,
) -> Result<ModelRecord, ModelError> {
    let (requests, tokens) = (seen.requests.len(), seen.tokens());
    if requests == 0 {
        return Err(ModelError::NothingMeasured("no request was answered in full within duration_ms".into()));
    }
    let total: u64 = seen.requests.iter().sum();
    let seconds = shape.duration.as_secs_f64();
    let mut report = Report::new();
    report.put("inference_time_s", "s", total as f64 / 1e9 / requests as f64);
    report.put("requests_per_s", "1/s", requests as f64 / seconds);
    report.put("tokens_per_s", "1/s", tokens as f64 / seconds);
    report.percentiles("time_to_first_token_ms", Unit::Ms, seen.first_tokens);
    report.percentiles("token_gap_ms", Unit::Ms, seen.gaps);
    report.evidence("requests", vec![requests as u64]);
    report.evidence("tokens", vec![tokens as u64]);
    report.evidence("steps", vec![steps]);
    report.machine(order, machine);
    Ok(report.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(params: &[(&str, i64)]) -> ModelOrder {
        let defaults = [
            ("clients", 5),
            ("front_threads", 2),
            ("ranks", 2),
            ("batch", 4),
            ("tokens", 3),
            ("step_us", 0),
            ("jitter_percent", 10),
            ("tokenise_us", 0),
            ("detokenise_us", 0),
            ("duration_ms", 50),
            ("client_node", -1),
        ];
        crate::test_order("engine-ipc", &defaults, params, &[CpuSet::range(0, 4), CpuSet::range(4, 8)])
    }

    #[test]
    fn clients_are_pinned_only_if_told() {
        assert!(Shape::new(&order(&[])).expect("defaults").client_cpus.is_none());
        let shape = Shape::new(&order(&[("client_node", 1), ("front_threads", 9)])).expect("given");
        assert_eq!((shape.client_cpus, shape.front_threads), (Some(CpuSet::range(4, 8)), 5));
        assert!(matches!(
            Shape::new(&order(&[("client_node", 2)])),
            Err(ModelError::OutOfRange { name: "client_node", .. })
        ));
    }

    #[test]
    fn a_step_is_off_by_the_jitter_at_most() {
        let shape = Shape::new(&order(&[("step_us", 1000), ("jitter_percent", 10)])).expect("given");
        assert_eq!((shape.step_ns, shape.jitter_ns()), (1_000_000, 100_000));
    }

    #[test]
    fn requests_go_round_until_the_end() {
        let shape = Shape::new(&order(&[])).expect("defaults");
        let (seen, steps, ()) = load(&shape, || Ok(()), Ok).expect("a load");
        let (tokens, requests) = (seen.tokens(), seen.requests.len());
        assert!(tokens >= requests * 3 && steps as usize * 4 >= tokens, "{tokens} {requests} {steps}");
        let record = record(&shape, seen, steps, &Machine::default(), &order(&[])).expect("requests were answered");
        assert!(record.metrics["inference_time_s"].value > 0.0);
    }

    #[test]
    fn threads_end_even_if_nothing_can_be_measured() {
        let shape = Shape::new(&order(&[])).expect("defaults");
        let refused = || Err::<(), _>(ModelError::NothingMeasured("no".into()));
        assert!(load(&shape, refused, Ok).is_err());
    }

    #[test]
    fn a_request_without_a_device_is_an_error_and_no_hang() {
        if std::path::Path::new("/dev/topolab-busy").exists() {
            return;
        }
        let shape = Shape::new(&order(&[("step_us", 1)])).expect("given");
        assert!(matches!(load(&shape, || Ok(()), Ok), Err(ModelError::System { .. })));
    }
}
