//! `scheduler-messages`: message threads that wake their workers by futex, the twin of schbench.
//!
//! | here | schbench |
//! |---|---|
//! | `message_threads` | `-m` |
//! | `workers` of each; 0: the CPUs divided among the message threads | `-t`; the same |
//! | `duration_ms` | `-r`, in seconds |
//! | `work_us`: burned for a request | `-n` matrix multiplications of `-F` kB |
//! | `think_us`: slept before that work | 100 µs, later `-s` |
//! | `phase_us`: workers start within this time of each other | none |
//! | no lock of the CPU during the work | `-L` |
//!
//! As there: a worker puts itself on its message thread's list, posts that thread, and waits; the message thread takes the
//! whole list, reads the clock once, and posts everyone on it. The wakeup latency is from that reading until the worker
//! runs; the request latency is from then, over think time and work, to the end of the work.

use crate::ModelError;
use crate::burn::Burner;
use crate::futex;
use crate::machine::{Machine, Watch};
use crate::params::Params;
use crate::report::{Report, Unit};
use crate::rng::SplitMix64;
use crate::threads::joined;
use crate::window::{Window, ns_since};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use topolab_wire::{CpuSet, ModelOrder, ModelRecord};

/// The resolved parameters.
#[derive(Debug, Clone, Copy)]
struct Shape {
    message_threads: usize,
    workers: usize,
    duration: Duration,
    work_ns: u64,
    think: Duration,
    phase_ns: u64,
    seed: u64,
}

impl Shape {
    fn new(order: &ModelOrder) -> Result<Self, ModelError> {
        let cpus: usize = order.nodes.iter().map(CpuSet::len).sum();
        let mut params = Params::new(&order.params);
        let message_threads = params.take_count("message_threads", 1..=1024)?;
        let workers = match params.take_count("workers", 0..=4096)? {
            0 => cpus.div_ceil(message_threads).max(1),
            given => given,
        };
        let shape = Self {
            message_threads,
            workers,
            duration: Duration::from_millis(params.take("duration_ms", 1..=600_000)?),
            work_ns: params.take("work_us", 0..=1_000_000)? * 1000,
            think: Duration::from_micros(params.take("think_us", 0..=1_000_000)?),
            phase_ns: params.take("phase_us", 0..=1_000_000)? * 1000,
            seed: order.seed,
        };
        params.finish()?;
        Ok(shape)
    }
}

/// What one thread posts and another waits for; posting twice before a wait is posting once.
#[derive(Default)]
struct Flag(AtomicU32);

impl Flag {
    fn clear(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    fn post(&self) -> io::Result<()> {
        match self.0.swap(1, Ordering::SeqCst) {
            0 => futex::wake(&self.0, 1),
            _ => Ok(()),
        }
    }

    fn wait(&self) -> io::Result<()> {
        while self.0.swap(0, Ordering::SeqCst) == 0 {
            futex::wait(&self.0, 0)?;
        }
        Ok(())
    }
}

/// The end of a list of workers.
const NOBODY: usize = usize::MAX;

/// A worker, as its message thread sees it.
struct Worker {
    flag: Flag,
    /// When the message thread began to wake those on its list, in nanoseconds since the run began.
    woken_at: AtomicU64,
    /// Who follows on the list.
    next: AtomicUsize,
}

/// A message thread and its workers.
struct Group {
    flag: Flag,
    /// The first worker on the list. Workers only add themselves and the message thread only takes the whole list, so
    /// that a compare-and-swap that meets an old head again still links a right list.
    head: AtomicUsize,
    workers: Vec<Worker>,
}

impl Group {
    fn new(workers: usize) -> Self {
        let worker = |_| Worker { flag: Flag::default(), woken_at: AtomicU64::new(0), next: AtomicUsize::new(NOBODY) };
        Self { flag: Flag::default(), head: AtomicUsize::new(NOBODY), workers: (0..workers).map(worker).collect() }
    }

    /// Puts a worker on the list.
    fn add(&self, worker: usize) {
        let mut head = self.head.load(Ordering::SeqCst);
        loop {
            self.workers[worker].next.store(head, Ordering::SeqCst);
            match self.head.compare_exchange(head, worker, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(changed) => head = changed,
            }
        }
    }

    /// Takes the list and wakes everyone on it.
    fn wake_all(&self, began: Instant) -> io::Result<()> {
        let mut next = self.head.swap(NOBODY, Ordering::SeqCst);
        let now = ns_since(began);
        while let Some(worker) = self.workers.get(next) {
            // Before the post: a worker that runs may put itself on the list again.
            next = worker.next.load(Ordering::SeqCst);
            worker.woken_at.store(now, Ordering::SeqCst);
            worker.flag.post()?;
        }
        Ok(())
    }
}

/// Everything that the threads share.
struct Stage {
    shape: Shape,
    began: Instant,
    window: Window,
    stop: AtomicBool,
    groups: Vec<Group>,
}

impl Stage {
    /// Tells every thread to end, as schbench does: the message threads then release their workers.
    fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
        for group in &self.groups {
            // A wakeup of a word of this process has no way to fail.
            let _ = group.flag.post();
        }
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// Ends the threads when it goes out of scope.
struct EndOnDrop<'a>(&'a Stage);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Samples in nanoseconds.
#[derive(Debug, Default)]
struct Latencies {
    wakeups: Vec<u64>,
    requests: Vec<u64>,
}

/// Runs the workload once.
pub(crate) fn run(order: &ModelOrder) -> Result<ModelRecord, ModelError> {
    let shape = Shape::new(order)?;
    let (latencies, machine) = load(shape, Watch::start, |watch| watch.stop(order))?;
    record(shape, latencies, &machine, order)
}

/// Runs the load, measured between `start` and `stop`.
fn load<W, M>(
    shape: Shape,
    start: impl FnOnce() -> Result<W, ModelError>,
    stop: impl FnOnce(W) -> Result<M, ModelError>,
) -> Result<(Latencies, M), ModelError> {
    let stage = Stage {
        shape,
        began: Instant::now(),
        window: Window::default(),
        stop: AtomicBool::new(false),
        groups: (0..shape.message_threads).map(|_| Group::new(shape.workers)).collect(),
    };
    let stage = &stage;
    std::thread::scope(|scope| {
        let ending = EndOnDrop(stage);
        let watch = start()?;
        stage.window.open_until(Instant::now() + shape.duration);
        let (mut messengers, mut workers) = (Vec::new(), Vec::new());
        for (g, group) in stage.groups.iter().enumerate() {
            messengers.push(scope.spawn(move || pass_on(stage, group)));
            for w in 0..shape.workers {
                let seed = shape.seed ^ (((g * shape.workers + w) as u64) << 32);
                workers.push(scope.spawn(move || work(stage, group, w, seed)));
            }
        }
        std::thread::sleep(shape.duration);
        let measured = stop(watch)?;
        drop(ending);
        for messenger in messengers {
            joined("message", messenger)?;
        }
        let mut all = Latencies::default();
        for worker in workers {
            let own = joined("worker", worker)?;
            all.wakeups.extend(own.wakeups);
            all.requests.extend(own.requests);
        }
        Ok((all, measured))
    })
}

/// A message thread.
fn pass_on(stage: &Stage, group: &Group) -> io::Result<()> {
    while !stage.stopping() {
        group.flag.clear();
        group.wake_all(stage.began)?;
        if !stage.stopping() {
            group.flag.wait()?;
        }
    }
    group.workers.iter().try_for_each(|worker| worker.flag.post())
}

/// A worker.
fn work(stage: &Stage, group: &Group, own: usize, seed: u64) -> io::Result<Latencies> {
    let shape = stage.shape;
    let mut burner = Burner::new(shape.work_ns)?;
    let mut latencies = Latencies::default();
    // Workers of a real machine are not in step; how far apart they start is what a seed changes.
    std::thread::sleep(Duration::from_nanos(SplitMix64::new(seed).below(shape.phase_ns.max(1))));
    while !stage.stopping() {
        let worker = &group.workers[own];
        worker.flag.clear();
        group.add(own);
        group.flag.post()?;
        // Looked at after the post: who posts last before the end is released by the message thread, or does not wait.
        if stage.stopping() {
            break;
        }
        worker.flag.wait()?;
        if stage.stopping() {
            break;
        }
        let running = Instant::now();
        if stage.window.counts() {
            let woken_at = worker.woken_at.load(Ordering::SeqCst);
            latencies.wakeups.push(ns_since(stage.began).saturating_sub(woken_at));
        }
        if !shape.think.is_zero() {
            std::thread::sleep(shape.think);
        }
        burner.burn(shape.work_ns)?;
        if stage.window.counts() {
            latencies.requests.push(ns_since(running));
        }
    }
    Ok(latencies)
}

fn record(
    shape: Shape,
    latencies: Latencies,
    machine: &Machine,
    order: &ModelOrder,
) -> Result<ModelRecord, ModelError> {
    let (wakeups, requests) = (latencies.wakeups.len(), latencies.requests.len());
    if requests == 0 {
        return Err(ModelError::NothingMeasured("no request was done within duration_ms".into()));
    }
    let mut report = Report::new();
    report.percentiles("wakeup_latency_us", Unit::Us, latencies.wakeups);
    report.percentiles("request_latency_us", Unit::Us, latencies.requests);
    report.put("requests_per_s", "1/s", requests as f64 / shape.duration.as_secs_f64());
    report.evidence("wakeup_latencies", vec![wakeups as u64]);
    report.evidence("request_latencies", vec![requests as u64]);
    report.machine(order, machine);
    Ok(report.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(params: &[(&str, i64)]) -> ModelOrder {
        let defaults = [
            ("message_threads", 2),
            ("workers", 0),
            ("duration_ms", 50),
            ("work_us", 0),
            ("think_us", 100),
            ("phase_us", 0),
        ];
        crate::test_order("scheduler-messages", &defaults, params, &[CpuSet::range(0, 3), CpuSet::range(3, 7)])
    }

    #[test]
    fn the_cpus_are_divided_among_the_message_threads() {
        assert_eq!(Shape::new(&order(&[])).expect("defaults").workers, 4);
        assert_eq!(Shape::new(&order(&[("workers", 9)])).expect("given").workers, 9);
    }

    #[test]
    fn a_list_holds_everyone_who_was_added() {
        let group = Group::new(3);
        for worker in [2, 0] {
            group.add(worker);
        }
        group.wake_all(Instant::now()).expect("nobody waits");
        let posted = |worker: &Worker| worker.flag.0.load(Ordering::SeqCst);
        assert_eq!(group.workers.iter().map(posted).collect::<Vec<_>>(), [1, 0, 1]);
        assert_eq!(group.head.load(Ordering::SeqCst), NOBODY);
    }

    #[test]
    fn workers_are_woken_until_the_end() {
        let shape = Shape::new(&order(&[])).expect("defaults");
        let (latencies, ()) = load(shape, || Ok(()), Ok).expect("a load");
        assert!(latencies.wakeups.len() >= latencies.requests.len());
        let record = record(shape, latencies, &Machine::default(), &order(&[])).expect("requests were done");
        assert!(record.metrics["request_latency_us.p50"].value >= 100.0);
    }

    #[test]
    fn threads_end_even_if_nothing_can_be_measured() {
        let shape = Shape::new(&order(&[])).expect("defaults");
        let refused = |()| Err::<(), _>(ModelError::NothingMeasured("no".into()));
        assert!(load(shape, || Ok(()), refused).is_err());
    }
}
