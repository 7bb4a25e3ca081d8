//! What `pipe-pair` and `futex-pair` share: two threads that pass tokens to and fro, and what is told of it.
//!
//! The shape of `perf bench sched pipe --threaded` (tools/perf/bench/sched-pipe.c). Its two tasks each write first and then
//! read, so that two tokens are under way; older versions let one task read first, with one token. `tokens` says which.

use crate::burn::Burner;
use crate::machine::{Machine, Watch};
use crate::params::Params;
use crate::report::Report;
use crate::threads::joined;
use crate::{ModelError, trying};
use std::io;
use std::time::{Duration, Instant};
use topolab_wire::ModelOrder;

/// One task's end of the way between both.
pub(crate) trait End: Send {
    /// Passes a token to the other task.
    fn give(&mut self) -> io::Result<()>;
    /// Waits for a token of the other task.
    fn take(&mut self) -> io::Result<()>;
}

/// The resolved parameters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// Tokens that each task takes, and gives.
    pub(crate) loops: u64,
    /// Tokens under way: 1 or 2.
    pub(crate) tokens: u64,
    /// What a task burns for each token that it took.
    pub(crate) work_ns: u64,
}

impl Shape {
    fn new(order: &ModelOrder) -> Result<Self, ModelError> {
        let mut params = Params::new(&order.params);
        let shape = Self {
            loops: params.take("loops", 1..=100_000_000)?,
            tokens: params.take("tokens", 1..=2)?,
            work_ns: params.take("work_us", 0..=1_000_000)? * 1000,
        };
        params.finish()?;
        Ok(shape)
    }
}

/// Runs the workload once over the ends that `open` gives; a model may add to the report what the machine did.
pub(crate) fn run<E: End>(
    order: &ModelOrder,
    open: impl FnOnce() -> Result<(E, E), ModelError>,
) -> Result<(Report, Machine), ModelError> {
    let shape = Shape::new(order)?;
    let ends = open()?;
    let watch = Watch::start()?;
    let elapsed = pass(shape, ends)?;
    let machine = watch.stop(order)?;
    let mut report = record(shape, elapsed);
    report.machine(order, &machine);
    Ok((report, machine))
}

/// Passes the tokens and returns how long that took. As in perf, from before the tasks' creation until both have ended.
pub(crate) fn pass<E: End>(shape: Shape, (mut near, mut far): (E, E)) -> Result<Duration, ModelError> {
    // Opened before any thread exists: a thread that ended with an error would leave the other one waiting.
    let mut near_burner = trying("burn", Burner::new(shape.work_ns))?;
    let mut far_burner = trying("burn", Burner::new(shape.work_ns))?;
    let began = Instant::now();
    std::thread::scope(|scope| {
        let gives_first = scope.spawn(move || {
            for _ in 0..shape.loops {
                near.give()?;
                near.take()?;
                near_burner.burn(shape.work_ns)?;
            }
            Ok(())
        });
        let other = scope.spawn(move || {
            for _ in 0..shape.loops {
                if shape.tokens == 2 {
                    far.give()?;
                }
                far.take()?;
                far_burner.burn(shape.work_ns)?;
                if shape.tokens == 1 {
                    far.give()?;
                }
            }
            Ok(())
        });
        joined("task", gives_first)?;
        joined("task", other)
    })?;
    Ok(began.elapsed())
}

fn record(shape: Shape, elapsed: Duration) -> Report {
    let mut report = Report::new();
    report.put("usecs_per_op", "us", elapsed.as_nanos() as f64 / 1e3 / shape.loops as f64);
    report.put("ops_per_s", "1/s", shape.loops as f64 / elapsed.as_secs_f64());
    report.evidence("loops", vec![shape.loops]);
    report.evidence("elapsed_ns", vec![u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)]);
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use topolab_wire::Setting;

    #[test]
    fn parameters_are_taken_by_their_names() {
        let given = [("loops", 7), ("tokens", 2), ("work_us", 3)];
        let mut order = crate::test_order("pipe-pair", &given, &[], &[]);
        let shape = Shape::new(&order).expect("all are given");
        assert_eq!((shape.loops, shape.tokens, shape.work_ns), (7, 2, 3000));
        order.params.insert("tokens".into(), Setting::Number(3));
        assert!(matches!(Shape::new(&order), Err(ModelError::OutOfRange { name: "tokens", .. })));
    }

    #[test]
    fn an_operation_is_one_loop_of_both_tasks() {
        let record = record(Shape { loops: 4, tokens: 2, work_ns: 0 }, Duration::from_micros(100)).finish();
        assert_eq!(record.metrics["usecs_per_op"].value, 25.0);
        assert_eq!(record.metrics["ops_per_s"].value, 40_000.0);
    }
}
