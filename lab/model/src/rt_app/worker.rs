//! One thread of a task: goes through its phases and does their events.

use super::clock;
use super::objects::{Shared, Timer};
use super::profile::{Event, Phase, Sched, Task, Timer as Whose};
use super::roll::{Leaving, Roll, Span};
use super::sched;
use crate::burn::Burner;
use crate::threads::pin_self;
use nix::sched::{CpuSet as Affinity, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use topolab_wire::CpuSet;

/// What all threads of a run share.
pub(super) struct Stage {
    pub(super) roll: Roll,
    shared: Shared,
    stop: AtomicBool,
}

impl Stage {
    pub(super) fn new(roll: Roll, shared: Shared) -> Self {
        Self { roll, shared, stop: AtomicBool::new(false) }
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Ends every thread, whatever it waits for; but sleeps end by themselves, at the end of the run.
    pub(super) fn end(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.roll.end();
        self.shared.end();
    }
}

/// What a thread has measured, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// From the end of a timer, or a signal, until the thread ran.
    pub(super) wakeups: Vec<u64>,
    /// From a thread's coming to a timer until the timer's end: negative if it came late.
    pub(super) slacks: Vec<i64>,
    /// How long each phase took, by the task's phases.
    pub(super) phases: Vec<Vec<u64>>,
    /// When the thread ended by itself, unless it was ended.
    pub(super) ended: Option<u64>,
}

/// How long a `runtime` computes before it looks at the clock again, as in rt-app.
const STEP_NS: u64 = 32_000;

/// Runs one thread of a task.
pub(super) fn run(stage: &Stage, task: &Task) -> io::Result<Samples> {
    let leaving = Leaving::new(&stage.roll);
    let work = task.phases.iter().flat_map(|phase| &phase.events).map(Event::work_ns).max();
    // Nothing fails before the thread has come.
    let burner = Burner::new(work.unwrap_or(0));
    let samples = match stage.roll.come() {
        Some(span) => Worker::new(stage, task, burner?, span)?.run()?,
        None => Samples::default(),
    };
    leaving.well();
    Ok(samples)
}

/// Whether there is time left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Going {
    On,
    Over,
}

struct Worker<'a> {
    stage: &'a Stage,
    task: &'a Task,
    burner: Burner,
    span: Span,
    /// From when timers count.
    first: u64,
    timers: Vec<Timer>,
    /// Where the thread could run when it began.
    initial: Affinity,
    cpus: Option<&'a CpuSet>,
    sched: Option<Sched>,
    nodes: Option<&'a CpuSet>,
    samples: Samples,
}

impl<'a> Worker<'a> {
    fn new(stage: &'a Stage, task: &'a Task, burner: Burner, span: Span) -> io::Result<Self> {
        let samples = Samples { phases: vec![Vec::new(); task.phases.len()], ..Samples::default() };
        Ok(Self {
            stage,
            task,
            burner,
            span,
            first: span.start + task.delay_ns,
            timers: task.timers.iter().map(Timer::new).collect(),
            initial: sched_getaffinity(Pid::from_raw(0))?,
            cpus: None,
            sched: None,
            nodes: None,
            samples,
        })
    }

    fn run(mut self) -> io::Result<Samples> {
        if self.life()? == Going::On {
            self.samples.ended = Some(clock::now()?);
        }
        Ok(self.samples)
    }

    /// The whole of it. Over, if it was ended.
    fn life(&mut self) -> io::Result<Going> {
        if self.task.delay_ns > 0 && self.sleep_until(self.first)? == Going::Over {
            return Ok(Going::Over);
        }
        self.place(Some(self.task.sched), self.task.nodes.as_ref())?;
        let task = self.task;
        let mut loops = 0;
        while task.loops != Some(loops) {
            for (n, phase) in task.phases.iter().enumerate() {
                if self.phase(n, phase)? == Going::Over {
                    return Ok(Going::Over);
                }
            }
            loops += 1;
        }
        Ok(Going::On)
    }

    fn phase(&mut self, n: usize, phase: &'a Phase) -> io::Result<Going> {
        let mut loops = 0;
        while phase.loops != Some(loops) {
            self.pin(phase.cpus.as_ref().or(self.task.cpus.as_ref()))?;
            self.place(phase.sched, phase.nodes.as_ref())?;
            let begun = clock::now()?;
            for event in &phase.events {
                if self.stage.stopping() || self.event(*event)? == Going::Over {
                    return Ok(Going::Over);
                }
            }
            let now = clock::now()?;
            if self.stage.stopping() || now > self.span.end {
                return Ok(Going::Over);
            }
            self.samples.phases[n].push(now - begun);
            loops += 1;
        }
        Ok(Going::On)
    }

    fn event(&mut self, event: Event) -> io::Result<Going> {
        let shared = &self.stage.shared;
        match event {
            Event::Run(ns) => return self.burn(ns),
            Event::Runtime(ns) => return self.burn_until(clock::now()? + ns),
            Event::Sleep(ns) => return self.sleep_until(clock::now()? + ns),
            Event::Timer(timer, period) => return self.timer(timer, period),
            Event::Lock(mutex) => shared.mutexes[mutex].lock()?,
            Event::Unlock(mutex) => shared.mutexes[mutex].unlock()?,
            Event::Wait(pair) => {
                let woken = shared.conditions[pair.condition].wait(&shared.mutexes[pair.mutex])?;
                self.woken(woken)?;
            }
            Event::Signal(condition) => shared.conditions[condition].signal()?,
            Event::Broadcast(condition) => shared.conditions[condition].broadcast()?,
            Event::Sync(pair) => {
                let condition = &shared.conditions[pair.condition];
                condition.signal()?;
                let woken = condition.wait(&shared.mutexes[pair.mutex])?;
                self.woken(woken)?;
            }
            Event::Barrier(barrier) => {
                let woken = shared.barriers[barrier].wait()?;
                self.woken(woken)?;
            }
            Event::Suspend(pair) => {
                let mutex = &shared.mutexes[pair.mutex];
                mutex.lock()?;
                let woken = shared.conditions[pair.condition].wait(mutex)?;
                mutex.unlock()?;
                self.woken(woken)?;
            }
            Event::Resume(pair) => {
                let mutex = &shared.mutexes[pair.mutex];
                mutex.lock()?;
                shared.conditions[pair.condition].broadcast()?;
                mutex.unlock()?;
            }
            Event::Yield => std::thread::yield_now(),
        }
        Ok(Going::On)
    }

    /// Notes how long ago the thread was woken when it ran, if it was and if that was in time.
    fn woken(&mut self, after: Option<u64>) -> io::Result<()> {
        if let Some(after) = after {
            if clock::now()? <= self.span.end {
                self.samples.wakeups.push(after);
            }
        }
        Ok(())
    }

    fn timer(&mut self, whose: Whose, period: u64) -> io::Result<Going> {
        let timer = match whose {
            Whose::Shared(index) => &self.stage.shared.timers[index],
            Whose::Own(index) => &self.timers[index],
        };
        let end = timer.next(self.first, period);
        let now = clock::now()?;
        if now <= self.span.end {
            self.samples.slacks.push(end as i64 - now as i64);
        }
        if now >= end {
            timer.missed(clock::now()?);
            return Ok(Going::On);
        }
        if self.sleep_until(end)? == Going::Over {
            return Ok(Going::Over);
        }
        let after = clock::now()?.saturating_sub(end);
        self.woken(Some(after))?;
        Ok(Going::On)
    }

    /// Sleeps, but not beyond the end of the run.
    fn sleep_until(&self, at: u64) -> io::Result<Going> {
        clock::sleep_until(at.min(self.span.end))?;
        Ok(if at > self.span.end { Going::Over } else { Going::On })
    }

    /// Computes, but not beyond the end of the run.
    fn burn(&mut self, ns: u64) -> io::Result<Going> {
        // Computing takes at least as long as it says.
        let left = self.span.end.saturating_sub(clock::now()?);
        self.burner.burn(ns.min(left))?;
        Ok(if ns > left { Going::Over } else { Going::On })
    }

    /// Computes until then, however much of the time others have the CPU.
    fn burn_until(&mut self, at: u64) -> io::Result<Going> {
        loop {
            let left = at.saturating_sub(clock::now()?);
            if left == 0 || self.stage.stopping() {
                return Ok(Going::On);
            }
            if self.burn(left.min(STEP_NS))? == Going::Over {
                return Ok(Going::Over);
            }
        }
    }

    /// Sets what is said and not yet so.
    fn place(&mut self, sched: Option<Sched>, nodes: Option<&'a CpuSet>) -> io::Result<()> {
        if let Some(wanted) = sched.filter(|_| sched != self.sched) {
            told(sched::set(wanted), || format!("{:?} {}", wanted.policy, wanted.priority))?;
            self.sched = sched;
        }
        if let Some(wanted) = nodes.filter(|_| nodes != self.nodes) {
            told(sched::bind_memory(wanted), || format!("nodes_membind {wanted}"))?;
            self.nodes = nodes;
        }
        Ok(())
    }

    /// Lets the thread run on these CPUs, or where it could at first.
    fn pin(&mut self, cpus: Option<&'a CpuSet>) -> io::Result<()> {
        if cpus != self.cpus {
            match cpus {
                Some(cpus) => told(pin_self(cpus), || format!("cpus {cpus}"))?,
                None => sched_setaffinity(Pid::from_raw(0), &self.initial)?,
            }
            self.cpus = cpus;
        }
        Ok(())
    }
}

/// Adds what was tried to an error.
fn told<T>(result: io::Result<T>, what: impl FnOnce() -> String) -> io::Result<T> {
    result.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", what())))
}
