//! Runs what the order asks for, repetition by repetition, and keeps what it said.

use crate::counting::Counting;
use crate::exec::{self, Where};
use crate::kmsg;
use crate::results::Outbox;
use crate::service::Running;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use topolab_wire::{Counted, Counts, CpuSet, Marker, ModelOrder, ProgramOrder, ProgramOutcome, Repetition};

/// Deadline of one run of a model, in guest seconds. Models end by themselves; this only keeps a broken one from
/// running into the host's deadline without a word.
const MODEL_DEADLINE: Duration = Duration::from_secs(3600);

/// Runs programs: preparations, warm-ups and repetitions.
pub fn run_program(
    order: &ProgramOrder,
    place: &Where,
    count: Option<&[CpuSet]>,
    outbox: &mut Outbox,
) -> io::Result<Vec<Repetition>> {
    for (n, step) in order.prepare.iter().enumerate() {
        let which = n + 1;
        let names = [format!("prepare-{n}.stdout"), format!("prepare-{n}.stderr")];
        let [out, err] = [outbox.create(&names[0])?, outbox.create(&names[1])?];
        let deadline = Duration::from_millis(step.deadline_ms);
        match exec::supervise(&mut exec::command(step, place), out.into(), err.into(), None, deadline)? {
            ProgramOutcome::Exit(0) => {}
            other => {
                let said = names.map(|name| outbox.text(&name)).join(" ");
                let last = said.trim().lines().last().unwrap_or_default().to_string();
                let program = step.argv.first().map_or("", String::as_str);
                let said = if last.is_empty() { "it said nothing".to_string() } else { format!("it said: {last}") };
                return Err(io::Error::other(format!("[[prepare]] {which}, {program}: {other}; {said}")));
            }
        }
    }
    exec::end_everything();
    for n in 0..order.warmup {
        one_program(order, place, &format!("warmup-{n}"), None, outbox)?;
    }
    repeat(order.repetitions, count, outbox, |name, _, count, outbox| one_program(order, place, name, count, outbox))
}

/// What a run says of itself, and what the scheduler did in it where that was counted.
type Ran = (Repetition, Option<Counts>);

/// One run with its services around it; the count is of the run alone.
fn one_program(
    order: &ProgramOrder,
    place: &Where,
    name: &str,
    count: Option<&[CpuSet]>,
    outbox: &mut Outbox,
) -> io::Result<Ran> {
    let (stdout, stderr) = (format!("{name}.stdout"), format!("{name}.stderr"));
    let out = outbox.create(&stdout)?;
    let err = outbox.create(&stderr)?;
    let left = place.root.join("out");
    // What an earlier run left is not this one's.
    clear(&left)?;
    let repetition = |outcome, files| Repetition {
        outcome,
        stdout: stdout.clone(),
        stderr: stderr.clone(),
        record: None,
        files,
        counted: None,
    };
    let mut services = Vec::new();
    for service in &order.services {
        let words = format!("{name}.service-{}", service.name);
        outbox.create(&words)?;
        match Running::start(service, place, &outbox.path(&words)) {
            Ok(running) => services.push((service.name.as_str(), running)),
            Err(why) => {
                drop(services);
                exec::end_everything();
                return Ok((repetition(ProgramOutcome::Service(why), BTreeMap::new()), None));
            }
        }
    }
    let deadline = Duration::from_millis(order.measured.deadline_ms);
    let mut command = exec::command(&order.measured, place);
    let (mut outcome, counts) =
        counted(count, || exec::supervise(&mut command, out.into(), err.into(), None, deadline))?;
    for (name, service) in &mut services {
        // Whatever the client says then, this is why.
        if let Err(why) = service.alive() {
            outcome = ProgramOutcome::Service(format!("service {name}: {why}"));
        }
    }
    // The last one started is the first to go.
    while services.pop().is_some() {}
    exec::end_everything();
    let files = collect(&left, name, outbox)?;
    Ok((repetition(outcome, files), counts))
}

/// Empties a folder that may be a mount point.
fn clear(folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for entry in std::fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        if path.is_dir() { std::fs::remove_dir_all(&path)? } else { std::fs::remove_file(&path)? }
    }
    Ok(())
}

/// Does something with the scheduler's doings counted, where they are.
fn counted<T>(count: Option<&[CpuSet]>, run: impl FnOnce() -> io::Result<T>) -> io::Result<(T, Option<Counts>)> {
    let counting = count.map(Counting::start).transpose()?;
    let result = run();
    let counts = counting.map(Counting::stop).transpose()?;
    Ok((result?, counts))
}

/// Takes the files that a run left.
fn collect(left: &Path, name: &str, outbox: &mut Outbox) -> io::Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let mut entries: Vec<_> = std::fs::read_dir(left)?.flatten().filter(|entry| entry.path().is_file()).collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let file = entry.file_name().to_string_lossy().into_owned();
        let kept = format!("{name}.out-{file}");
        io::copy(&mut std::fs::File::open(entry.path())?, &mut outbox.create(&kept)?)?;
        files.insert(file, kept);
    }
    Ok(files)
}

/// Runs a model's repetitions, each as a process of its own with a seed of its own.
pub fn run_model(order: &ModelOrder, count: Option<&[CpuSet]>, outbox: &mut Outbox) -> io::Result<Vec<Repetition>> {
    repeat(order.repetitions, count, outbox, |name, n, count, outbox| {
        let (stdout, stderr) = (format!("{name}.json"), format!("{name}.stderr"));
        let out = outbox.create(&stdout)?;
        let err = outbox.create(&stderr)?;
        let input = serde_json::to_vec(&ModelOrder { seed: order.seed.wrapping_add(u64::from(n)), ..order.clone() })?;
        let mut command = Command::new("/proc/self/exe");
        command.arg("model");
        let run = || exec::supervise(&mut command, out.into(), Stdio::from(err), Some(&input), MODEL_DEADLINE);
        let (outcome, counts) = counted(count, run)?;
        let (record, files) = (Some(stdout.clone()), BTreeMap::new());
        Ok((Repetition { outcome, stdout, stderr, record, files, counted: None }, counts))
    })
}

/// The repetitions, each followed by a counted one where that is asked for: a count costs time, so it never touches the run whose
/// numbers are judged.
fn repeat(
    repetitions: u32,
    count: Option<&[CpuSet]>,
    outbox: &mut Outbox,
    mut run: impl FnMut(&str, u32, Option<&[CpuSet]>, &mut Outbox) -> io::Result<Ran>,
) -> io::Result<Vec<Repetition>> {
    let mut all = Vec::new();
    for n in 0..repetitions {
        kmsg::say(&Marker::Repetition(n));
        let (mut repetition, _) = run(&format!("rep-{n}"), n, None, outbox)?;
        if count.is_some() {
            let (counted, counts) = run(&format!("counted-{n}"), n, count, outbox)?;
            let name = format!("counted-{n}.counts");
            serde_json::to_writer(outbox.create(&name)?, &counts.unwrap_or_default())?;
            repetition.counted = Some(Box::new(Counted { run: counted, counts: name }));
        }
        all.push(repetition);
    }
    Ok(all)
}
