//! From what a guest left to a trial's record: first whether it was the machine, then the numbers.

use super::Bench;
use crate::bundle::{self, Better, From, Outputs};
use crate::fault::{Fault, FaultKind, Outcome, Trying};
use crate::guest::Lived;
use crate::mechanism::{self, Places};
use crate::plan::Trial;
use crate::results::{Invariant, NO_COMPLAINTS, Observed, Samples, TrialRecord};
use crate::topology::{Level, compare};
use std::collections::BTreeMap;
use std::path::Path;
use topolab_wire::{Counted, Counts, ModelRecord, ProgramOutcome, Repetition, Value};

impl Bench<'_> {
    /// Turns what the guest left into the record: first whether it was the machine, then the numbers.
    pub(super) fn read(&self, lived: &Lived, trial: &Trial, record: &mut TrialRecord) -> Outcome<()> {
        let topology = &self.plan.topologies[trial.topology];
        let observed = Observed::from(&compare(topology, self.plan.arch, &lived.observation));
        let complaints = lived.complaints();
        record.cautions.clone_from(&lived.cautions);
        if lived.late {
            self.progress.say(format!(
                "{} on {}: the host is so busy that QEMU's main loop did not wait for its turn; if another run differs, that is why",
                record.bundle, record.topology
            ));
        }
        record.invariants.push(Invariant {
            name: NO_COMPLAINTS.into(),
            holds: complaints.is_empty(),
            evidence: complaints.into_iter().map(|(title, _)| title).collect::<Vec<_>>().join("; "),
        });
        let (matches, differs) = (observed.matches, observed.differs.clone());
        record.observed = Some(observed);
        if !matches && !self.allow_mismatch {
            let rows: Vec<String> = differs
                .iter()
                .map(|r| format!("{}: declared {}, observed {}", r.what, r.declared, r.observed))
                .collect();
            return Err(Fault::new(
                FaultKind::Mismatch,
                format!("the guest is not the declared machine {}", topology.name),
            )
            .detail(rows.join("\n"))
            .help("--allow-mismatch measures all the same, and says so on every record"));
        }
        if lived.done.repetitions.len() != self.plan.reps as usize {
            return Err(Fault::lab(format!(
                "{} repetitions came back, {} were ordered",
                lived.done.repetitions.len(),
                self.plan.reps
            )));
        }
        for (n, repetition) in lived.done.repetitions.iter().enumerate() {
            let plain = self.read_one(&format!("repetition {n}"), repetition, &lived.results, trial)?;
            if let Some(counted) = &repetition.counted {
                self.read_counted(n, counted, &plain.metrics, lived, trial, record)?;
            }
            for (name, value) in plain.metrics {
                add(&mut record.metrics, name, value);
            }
            record.invariants.extend(plain.invariants);
        }
        Ok(())
    }

    /// The numbers and invariants of one run.
    fn read_one(&self, what: &str, repetition: &Repetition, results: &Path, trial: &Trial) -> Outcome<Said> {
        let text =
            |name: &str| std::fs::read(results.join(name)).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let bundle = &self.plan.bundles[trial.bundle].bundle;
        let unreadable = |why: String| {
            let said = [&repetition.stdout, &repetition.stderr].map(|name| text(name).unwrap_or_default()).join("\n");
            Fault::new(FaultKind::Bundle, format!("{}, {what}: {why}", bundle.name)).detail(format!(
                "{}\n\nthe raw output: {}.*",
                last_lines(&said),
                results.join(repetition.stdout.trim_end_matches(".stdout").trim_end_matches(".json")).display()
            ))
        };
        if repetition.outcome != ProgramOutcome::Exit(0) {
            return Err(unreadable(repetition.outcome.to_string()));
        }
        let read = |name: &String| text(name).map_err(|e| unreadable(e.to_string()));
        let kept = |(name, kept): (&String, &String)| Ok((name.clone(), read(kept)?));
        let outputs = Outputs {
            stdout: read(&repetition.stdout)?,
            stderr: read(&repetition.stderr)?,
            files: repetition.files.iter().map(kept).collect::<Outcome<_>>()?,
        };
        if repetition.record.is_some() {
            let model: ModelRecord = serde_json::from_str(&outputs.stdout).map_err(|e| unreadable(e.to_string()))?;
            let invariant = |(name, (holds, evidence))| Invariant { name, holds, evidence };
            let invariants = model.invariants.into_iter().map(invariant).collect();
            return Ok(Said { metrics: model.metrics, invariants });
        }
        let metrics = bundle::read(bundle, &outputs).map_err(|e| {
            // What was searched, and nothing else.
            let file = match e.place() {
                From::Stdout => &repetition.stdout,
                From::Stderr => &repetition.stderr,
                From::File(name) => repetition.files.get(name).unwrap_or(name),
            };
            let said = outputs.of(e.place()).unwrap_or_default();
            Fault::new(FaultKind::Bundle, format!("{}, {what}: {e}", bundle.name)).detail(format!(
                "{}\n\nthe raw output: {}",
                last_lines(said),
                results.join(file).display()
            ))
        })?;
        let promised = bundle.promises.iter().map(|promise| {
            let (holds, evidence) = promise.kept(&outputs);
            Invariant { name: promise.name.clone(), holds, evidence }
        });
        Ok(Said { metrics, invariants: promised.collect() })
    }

    /// What the scheduler did in a counted run, and what the counting cost: by how much each judged number differs from the plain
    /// run before it.
    fn read_counted(
        &self,
        n: usize,
        counted: &Counted,
        plain: &BTreeMap<String, Value>,
        lived: &Lived,
        trial: &Trial,
        record: &mut TrialRecord,
    ) -> Outcome<()> {
        let (topology, bundle) = (&self.plan.topologies[trial.topology], &self.plan.bundles[trial.bundle].bundle);
        let said = self.read_one(&format!("counted run {n}"), &counted.run, &lived.results, trial)?;
        let path = lived.results.join(&counted.counts);
        let text = std::fs::read(&path).trying(path.display())?;
        let counts: Counts = serde_json::from_slice(&text).trying(path.display())?;
        if let Some(why) = &counts.missing {
            record.cautions.push(format!("no wakeups, stacking and migrations were counted: {why}"));
            record.cautions.dedup();
        }
        let (llcs, nodes) = (topology.present_units(topology.llc), topology.present_units(Level::Node));
        let places = Places { llcs: &llcs, nodes: &nodes, observation: &lived.observation };
        let numbers = mechanism::numbers(&counts, &places);
        for (name, value) in numbers.map_err(|e| Fault::lab(format!("{}: {e}", path.display())))? {
            add(&mut record.mechanism, name, value);
        }
        for (name, before) in plain {
            let judged = bundle.metric(name).is_some_and(|metric| metric.better != Better::Neither);
            let after = said.metrics.get(name).map(|value| value.value);
            if let (true, Some(after), true) = (judged, after, before.value > 0.0) {
                let cost = Value { unit: "%".into(), value: 100.0 * (after / before.value - 1.0), thin: false };
                add(&mut record.mechanism, format!("overhead.{name}"), cost);
            }
        }
        Ok(())
    }
}

/// The last lines of an output that say something.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// What one run said.
struct Said {
    metrics: BTreeMap<String, Value>,
    invariants: Vec<Invariant>,
}

fn add(all: &mut BTreeMap<String, Samples>, name: String, Value { unit, value, thin }: Value) {
    let samples = all.entry(name).or_insert_with(|| Samples { unit, samples: Vec::new(), thin: false });
    samples.samples.push(value);
    samples.thin |= thin;
}
