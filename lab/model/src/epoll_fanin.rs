//! `epoll-fanin`: many client threads on one node, workers anywhere, TCP and epoll between them.
//!
//! The shape of memcached under memtier with the client pinned to one sub-NUMA cluster: a client keeps one request in
//! flight on each of its connections; a worker that epoll wakes burns `service_us` and answers; the client burns
//! `think_us` before the next request on that connection. Every send wakes the other side through `ep_poll_callback`,
//! which is a synchronous wakeup since commit 900bbaae67e9.

use crate::burn::Burner;
use crate::machine::{ByCpu, Machine, Watch};
use crate::params::Params;
use crate::polled::{POLL_MS, epoll_over};
use crate::report::{Report, Unit};
use crate::rng::SplitMix64;
use crate::threads::{RaiseOnDrop, joined, pin_self, this_cpu};
use crate::window::{Window, ns_since};
use crate::{ModelError, trying};
use nix::sys::epoll::{EpollEvent, EpollTimeout};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use topolab_wire::{CpuSet, ModelOrder, ModelRecord};

/// Bytes of a request and of its answer.
const MESSAGE: usize = 64;

/// The resolved parameters.
struct Shape {
    clients: usize,
    workers: usize,
    connections: usize,
    service_ns: u64,
    think_ns: u64,
    phase_ns: u64,
    duration: Duration,
    client_cpus: CpuSet,
}

impl Shape {
    fn new(order: &ModelOrder) -> Result<Self, ModelError> {
        let cpus: usize = order.nodes.iter().map(CpuSet::len).sum();
        let last_node = order.nodes.len().saturating_sub(1);
        let mut params = Params::new(&order.params);
        let client_node = params.take_count("client_node", 0..=i64::try_from(last_node).unwrap_or(0))?;
        let client_cpus = order.nodes.get(client_node).cloned().unwrap_or_default();
        // 0 means as many as there are CPUs to fill: the load then scales with the machine.
        let or = |given: usize, default: usize| if given == 0 { default } else { given };
        let shape = Self {
            clients: or(params.take_count("clients", 0..=1024)?, client_cpus.len()),
            workers: or(params.take_count("workers", 0..=4096)?, cpus),
            connections: params.take_count("connections", 1..=1024)?,
            service_ns: params.take("service_us", 0..=1_000_000)? * 1000,
            think_ns: params.take("think_us", 0..=1_000_000)? * 1000,
            phase_ns: params.take("phase_us", 0..=1_000_000)? * 1000,
            duration: Duration::from_millis(params.take("duration_ms", 1..=600_000)?),
            client_cpus,
        };
        params.finish()?;
        match shape.client_cpus.is_empty() {
            true => Err(ModelError::NothingMeasured(format!("node {client_node} has no CPUs to pin the clients to"))),
            false => Ok(shape),
        }
    }
}

/// The ends of the connections that each thread holds.
type Ends = Vec<Vec<TcpStream>>;

/// One client's end: its latencies in nanoseconds.
type Latencies = Vec<u64>;
/// One worker's end: requests served by the CPU they were served on.
type Served = ByCpu;

/// Runs the workload once.
pub(crate) fn run(order: &ModelOrder) -> Result<ModelRecord, ModelError> {
    let shape = Shape::new(order)?;
    // Held here until every thread has ended: a thread that closed its ends would reset the others' last messages.
    let (mut client_ends, mut worker_ends) = connect(&shape)?;
    let stop = AtomicBool::new(false);
    let stop = &stop;
    let window = Window::default();
    let window = &window;
    let shape_ref = &shape;
    std::thread::scope(|scope| {
        // Whatever ends this scope early must end its threads too.
        let _ending = RaiseOnDrop(stop);
        let workers: Vec<_> =
            worker_ends.iter_mut().map(|ends| scope.spawn(move || work(shape_ref, ends, stop, window))).collect();
        let watch = Watch::start()?;
        window.open_until(watch.began() + shape_ref.duration);
        let clients: Vec<_> = client_ends
            .iter_mut()
            .enumerate()
            .map(|(n, ends)| scope.spawn(move || ask(shape_ref, ends, order.seed ^ ((n as u64) << 32), stop, window)))
            .collect();
        std::thread::sleep(shape_ref.duration);
        let machine = watch.stop(order)?;
        stop.store(true, Ordering::Relaxed);

        let mut latencies = Vec::new();
        for client in clients {
            latencies.extend(joined("client", client)?);
        }
        let mut served = Served::new();
        for worker in workers {
            for (cpu, count) in joined("worker", worker)? {
                *served.entry(cpu).or_default() += count;
            }
        }
        Measured { window: shape_ref.duration, latencies, served, machine }.record(order)
    })
}

/// Opens every connection and deals them out: each client has its own, workers take them round robin.
fn connect(shape: &Shape) -> Result<(Ends, Ends), ModelError> {
    let listener = trying("listen on loopback", TcpListener::bind(("127.0.0.1", 0)))?;
    let address = trying("listen on loopback", listener.local_addr())?;
    let mut worker_ends: Ends = (0..shape.workers).map(|_| Vec::new()).collect();
    let mut client_ends = Ends::new();
    let mut next = 0;
    for _ in 0..shape.clients {
        let mut own = Vec::new();
        for _ in 0..shape.connections {
            let near = trying("connect", TcpStream::connect(address))?;
            let (far, _) = trying("accept", listener.accept())?;
            for end in [&near, &far] {
                trying("TCP_NODELAY", end.set_nodelay(true))?;
                trying("O_NONBLOCK", end.set_nonblocking(true))?;
            }
            own.push(near);
            worker_ends[next % shape.workers].push(far);
            next += 1;
        }
        client_ends.push(own);
    }
    Ok((client_ends, worker_ends))
}

/// Calls `each` with the index of every connection that has a message, until the run is over.
fn serve(
    ends: &mut [TcpStream],
    stop: &AtomicBool,
    mut each: impl FnMut(usize, &mut TcpStream) -> io::Result<()>,
) -> io::Result<()> {
    let epoll = epoll_over(ends)?;
    let mut events = [EpollEvent::empty(); 64];
    let mut message = [0; MESSAGE];
    let going = || !stop.load(Ordering::Relaxed);
    while going() {
        let ready = epoll.wait(&mut events, EpollTimeout::from(POLL_MS))?;
        for event in events[..ready].iter().take_while(|_| going()) {
            let index = event.data() as usize;
            match ends[index].read(&mut message) {
                // Both ends write whole messages of 64 bytes at once, which loopback TCP never splits.
                Ok(MESSAGE) => each(index, &mut ends[index])?,
                Ok(0) => return Ok(()),
                Ok(n) => return Err(io::Error::other(format!("a message of {MESSAGE} bytes came in parts: {n}"))),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(())
}

fn work(shape: &Shape, ends: &mut [TcpStream], stop: &AtomicBool, window: &Window) -> io::Result<Served> {
    let mut burner = Burner::new(shape.service_ns)?;
    let mut served = Served::new();
    serve(ends, stop, |_, end| {
        burner.burn(shape.service_ns)?;
        let cpu = this_cpu()?;
        if window.counts() {
            *served.entry(cpu).or_default() += 1;
        }
        end.write_all(&[0; MESSAGE])
    })?;
    Ok(served)
}

fn ask(shape: &Shape, ends: &mut [TcpStream], seed: u64, stop: &AtomicBool, window: &Window) -> io::Result<Latencies> {
    pin_self(&shape.client_cpus)?;
    let mut burner = Burner::new(shape.think_ns)?;
    let mut rng = SplitMix64::new(seed);
    let mut latencies = Latencies::with_capacity(1 << 14);
    let mut sent = vec![Instant::now(); ends.len()];
    // Clients of a real machine are not in step; how far apart they start is what a seed changes.
    std::thread::sleep(Duration::from_nanos(rng.below(shape.phase_ns.max(1))));
    for (index, end) in ends.iter_mut().enumerate() {
        sent[index] = Instant::now();
        end.write_all(&[0; MESSAGE])?;
    }
    serve(ends, stop, |index, end| {
        if window.counts() {
            latencies.push(ns_since(sent[index]));
        }
        burner.burn(shape.think_ns)?;
        sent[index] = Instant::now();
        end.write_all(&[0; MESSAGE])
    })?;
    Ok(latencies)
}

/// What a run left behind.
struct Measured {
    /// What completions were counted in.
    window: Duration,
    latencies: Latencies,
    served: Served,
    machine: Machine,
}

impl Measured {
    fn record(self, order: &ModelOrder) -> Result<ModelRecord, ModelError> {
        let count = self.latencies.len();
        if count == 0 {
            return Err(ModelError::NothingMeasured("no request was answered within duration_ms".into()));
        }
        let mut report = Report::new();
        report.percentiles("latency_ms", Unit::Ms, self.latencies);
        report.put("ops_per_s", "1/s", count as f64 / self.window.as_secs_f64());
        report.evidence("latencies", vec![count as u64]);
        report.shares(order, &self.served);
        report.machine(order, &self.machine);
        Ok(report.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(params: &[(&str, i64)]) -> ModelOrder {
        let defaults = [
            ("clients", 0),
            ("workers", 0),
            ("connections", 4),
            ("service_us", 2000),
            ("think_us", 500),
            ("phase_us", 100),
            ("duration_ms", 700),
            ("client_node", 0),
        ];
        ModelOrder {
            llcs: vec![CpuSet::range(0, 8), CpuSet::range(8, 24)],
            ..crate::test_order("epoll-fanin", &defaults, params, &[CpuSet::range(0, 8), CpuSet::range(8, 24)])
        }
    }

    #[test]
    fn the_load_scales_with_the_machine_unless_told() {
        let shape = Shape::new(&order(&[])).expect("defaults");
        assert_eq!((shape.clients, shape.workers), (8, 24));
        let shape = Shape::new(&order(&[("client_node", 1), ("workers", 3)])).expect("given");
        assert_eq!((shape.clients, shape.workers), (16, 3));
    }

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        assert!(matches!(
            Shape::new(&order(&[("client_node", 2)])),
            Err(ModelError::OutOfRange { name: "client_node", .. })
        ));
    }

    #[test]
    fn rates_are_per_window_and_latencies_in_ms() {
        let measured = Measured {
            window: Duration::from_millis(1),
            latencies: vec![3_000_000, 1_000_000, 2_000_000],
            served: Served::from([(0, 1), (8, 3)]),
            machine: Machine { elapsed: Duration::from_millis(1), ..Machine::default() },
        };
        let record = measured.record(&order(&[])).expect("a record");
        let value = |name: &str| record.metrics[name].value;
        assert_eq!(value("ops_per_s"), 3000.0);
        assert_eq!(value("latency_ms.p50"), 2.0);
        assert_eq!((value("share.node0"), value("share.node1")), (25.0, 75.0));
        assert_eq!(record.evidence["latencies"], [3]);
    }
}
