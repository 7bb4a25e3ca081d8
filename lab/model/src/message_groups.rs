//! `message-groups`: groups of senders that each write to every receiver of their group, the twin of hackbench.
//!
//! | here | hackbench (rt-tests), perf bench sched messaging |
//! |---|---|
//! | `groups` | `-g` |
//! | `fds`: senders, and receivers, of a group | `-f`; perf: always 20 |
//! | `loops`: messages from each sender to each receiver | `-l` |
//! | `size` | `-s`; perf: always 100 |
//! | `transport` pipe | `-p` |
//! | `transport` socket | neither: a pair of stream sockets |
//! | threads of one process | `-T`; perf: `-t` |
//! | `work_us`: burned by a receiver for each message | none: 0 |
//!
//! As there, every task reports itself ready, waits in poll() on one pipe or socket for the start, and the time is from the
//! start until the last task has ended. Nothing is random: the seed changes nothing.

use crate::burn::Burner;
use crate::machine::{ByCpu, Machine, Watch};
use crate::params::Params;
use crate::report::Report;
use crate::threads::{joined, this_cpu};
use crate::{ModelError, trying};
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::pipe2;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use topolab_wire::{ModelOrder, ModelRecord};

/// File descriptors of the process beside those of the groups: standard streams, the busy device's and some to spare.
const OTHER_FILES: u64 = 64;

/// What carries the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Pipe,
    Socket,
}

impl Transport {
    /// The words for them, in the order of the variants' use in `of`.
    const WORDS: [&str; 2] = ["pipe", "socket"];

    fn of(index: usize) -> Self {
        if index == 0 { Self::Pipe } else { Self::Socket }
    }

    /// A way from its second end to its first.
    fn open(self) -> io::Result<(File, File)> {
        let (into, out): (OwnedFd, OwnedFd) = match self {
            Self::Pipe => pipe2(OFlag::O_CLOEXEC)?,
            Self::Socket => UnixStream::pair().map(|(into, out)| (into.into(), out.into()))?,
        };
        Ok((into.into(), out.into()))
    }
}

/// The resolved parameters.
#[derive(Debug, Clone, Copy)]
struct Shape {
    groups: usize,
    fds: usize,
    loops: usize,
    size: usize,
    transport: Transport,
    work_ns: u64,
}

impl Shape {
    fn new(order: &ModelOrder) -> Result<Self, ModelError> {
        let mut params = Params::new(&order.params);
        let shape = Self {
            groups: params.take_count("groups", 1..=1024)?,
            fds: params.take_count("fds", 1..=1024)?,
            loops: params.take_count("loops", 1..=1_000_000)?,
            size: params.take_count("size", 1..=1 << 20)?,
            transport: Transport::of(params.take_word("transport", &Transport::WORDS)?),
            work_ns: params.take("work_us", 0..=1_000_000)? * 1000,
        };
        params.finish()?;
        Ok(shape)
    }

    /// How many messages all receivers get.
    fn messages(&self) -> u64 {
        [self.groups, self.fds, self.fds, self.loops].iter().map(|n| *n as u64).product()
    }
}

/// What the messages left behind.
#[derive(Debug)]
struct Delivered {
    elapsed: Duration,
    received: ByCpu,
}

/// Runs the workload once.
pub(crate) fn run(order: &ModelOrder) -> Result<ModelRecord, ModelError> {
    let shape = Shape::new(order)?;
    let (delivered, watch) = deliver(shape, Watch::start)?;
    let machine = watch.stop(order)?;
    Ok(record(shape, delivered, &machine, order))
}

/// Delivers all messages. `start` is called when every task waits for the start.
fn deliver<W>(shape: Shape, start: impl FnOnce() -> Result<W, ModelError>) -> Result<(Delivered, W), ModelError> {
    let ways = shape.groups * shape.fds;
    trying("RLIMIT_NOFILE", allow_files(3 * ways as u64 + OTHER_FILES))?;
    let open = || trying("open a way for messages", shape.transport.open());
    let (mut ready, ready_out) = open()?;
    let (wake, mut wake_out) = open()?;
    let ways: Vec<_> = (0..ways).map(|_| open()).collect::<Result<_, _>>()?;
    // Before any thread exists: one that ended with an error would leave the others waiting.
    let mut burners = ways.iter().map(|_| trying("burn", Burner::new(shape.work_ns))).collect::<Result<Vec<_>, _>>()?;
    let wait_for_start = || {
        (&ready_out).write_all(b"R")?;
        poll(&mut [PollFd::new(wake.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE)?;
        Ok::<_, io::Error>(())
    };
    let wait_for_start = &wait_for_start;
    let packets = shape.fds * shape.loops;
    std::thread::scope(|scope| {
        let (mut receivers, mut senders) = (Vec::new(), Vec::new());
        let mut burners = burners.iter_mut();
        for group in ways.chunks(shape.fds) {
            for ((into, _), burner) in group.iter().zip(burners.by_ref()) {
                receivers.push(scope.spawn(move || {
                    wait_for_start()?;
                    receive(into, packets, shape, burner)
                }));
            }
            for _ in 0..shape.fds {
                senders.push(scope.spawn(move || {
                    wait_for_start()?;
                    send(group, shape)
                }));
            }
        }
        trying("wait for the tasks", ready.read_exact(&mut vec![0; receivers.len() + senders.len()]))?;
        let started = start();
        let began = Instant::now();
        // Even if nothing can be measured: the tasks wait for it.
        trying("start the tasks", wake_out.write_all(b"G"))?;
        let mut received = ByCpu::new();
        for sender in senders {
            joined("sender", sender)?;
        }
        for receiver in receivers {
            for (cpu, count) in joined("receiver", receiver)? {
                *received.entry(cpu).or_default() += count;
            }
        }
        Ok((Delivered { elapsed: began.elapsed(), received }, started?))
    })
}

/// Lets the process open this many files, if it may not yet. The guest's agent is privileged.
fn allow_files(needed: u64) -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    match needed > soft {
        true => Ok(setrlimit(Resource::RLIMIT_NOFILE, needed, hard.max(needed))?),
        false => Ok(()),
    }
}

/// Sprays the messages over the group, one to each receiver in turn.
fn send(group: &[(File, File)], shape: Shape) -> io::Result<()> {
    let message = vec![0; shape.size];
    for _ in 0..shape.loops {
        for (_, out) in group {
            let mut out = out;
            out.write_all(&message)?;
        }
    }
    Ok(())
}

fn receive(into: &File, packets: usize, shape: Shape, burner: &mut Burner) -> io::Result<ByCpu> {
    let mut into = into;
    let mut message = vec![0; shape.size];
    let mut received = ByCpu::new();
    for _ in 0..packets {
        into.read_exact(&mut message)?;
        burner.burn(shape.work_ns)?;
        *received.entry(this_cpu()?).or_default() += 1;
    }
    Ok(received)
}

fn record(shape: Shape, delivered: Delivered, machine: &Machine, order: &ModelOrder) -> ModelRecord {
    let seconds = delivered.elapsed.as_secs_f64();
    let received: u64 = delivered.received.values().sum();
    let mut report = Report::new();
    report.put("time_s", "s", seconds);
    report.put("messages_per_s", "1/s", received as f64 / seconds);
    report.evidence("elapsed_ns", vec![u64::try_from(delivered.elapsed.as_nanos()).unwrap_or(u64::MAX)]);
    let expected = shape.messages();
    report.invariant("every_message_received", received == expected, format!("{received} of {expected} messages"));
    report.shares(order, &delivered.received);
    report.machine(order, machine);
    report.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use topolab_wire::{CpuSet, Setting};

    fn order(transport: &str) -> ModelOrder {
        let given = [("groups", 2), ("fds", 3), ("loops", 5), ("size", 100), ("work_us", 0)];
        let mut order = crate::test_order("message-groups", &given, &[], &[CpuSet::range(0, 4096)]);
        order.params.insert("transport".into(), Setting::Word(transport.into()));
        order
    }

    #[test]
    fn every_sender_reaches_every_receiver_of_its_group() {
        for transport in Transport::WORDS {
            let shape = Shape::new(&order(transport)).expect("all are given");
            assert_eq!(shape.messages(), 2 * 3 * 3 * 5);
            let (delivered, ()) = deliver(shape, || Ok(())).expect("all messages arrive");
            let machine = Machine { elapsed: delivered.elapsed, ..Machine::default() };
            let record = record(shape, delivered, &machine, &order(transport));
            assert!(record.invariants["every_message_received"].0);
            assert_eq!(record.metrics["share.node0"].value, 100.0);
        }
    }

    #[test]
    fn tasks_end_even_if_nothing_can_be_measured() {
        let shape = Shape::new(&order("pipe")).expect("all are given");
        let refused = || Err::<(), _>(ModelError::NothingMeasured("no".into()));
        assert!(deliver(shape, refused).is_err());
    }

    #[test]
    fn a_transport_is_one_of_two_words() {
        assert!(matches!(Shape::new(&order("tcp")), Err(ModelError::OutOfRange { name: "transport", .. })));
    }
}
