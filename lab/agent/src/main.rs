//! PID 1 of a topolab guest; see the library for the order of things.

use std::process::ExitCode;
use topolab_agent::{exec, init, kmsg, observe, results, work};
use topolab_wire::{Marker, ModelOrder, ORDER_PATH, Order, PROTOCOL, Stage, Work};

/// Why the agent gave up, for [`Marker::Failed`].
type Failure = (Stage, String);

/// Says at which stage something failed.
fn at<T, E: std::fmt::Display>(stage: Stage, what: &str, result: Result<T, E>) -> Result<T, Failure> {
    result.map_err(|e| (stage, format!("{what}: {e}")))
}

fn main() -> ExitCode {
    // The kernel hands PID 1 whatever it does not know of its command line, so words only count for other processes.
    if std::process::id() == 1 {
        // A PID 1 that unwinds would make the kernel panic, which would look like the kernel's fault.
        let lived = std::panic::catch_unwind(life).unwrap_or_else(|_| Err((Stage::Setup, "the agent panicked".into())));
        if let Err((stage, why)) = lived {
            kmsg::say(&Marker::Failed(stage, why));
        }
        return init::power_off();
    }
    match std::env::args().nth(1).as_deref() {
        Some("model") => run_model(),
        Some("enter") => enter(),
        Some("tool") => run_tool(),
        Some(_) | None => {
            eprintln!("topolab-agent: this program is PID 1 of a topolab guest and does nothing elsewhere");
            ExitCode::from(2)
        }
    }
}

/// The whole life of PID 1.
fn life() -> Result<(), Failure> {
    at(Stage::Setup, "mount", init::mount_kernel_filesystems())?;
    kmsg::say(&Marker::Hello(PROTOCOL));
    let order = read_order()?;
    for module in &order.modules {
        at(Stage::Module, "module", init::load_module(module))?;
    }
    at(Stage::Setup, "costs", init::charge(&order.costs))?;
    at(Stage::Setup, "CPUs to switch off", init::switch_off(&order.offline))?;
    let apart = at(Stage::Setup, "cpuset partition", init::isolate("topolab-isolated", &order.partition))?;
    let observation = at(Stage::Observe, "observe", observe::observe(std::path::Path::new("/")))?;
    kmsg::say(&Marker::Observed);

    let mut outbox = at(Stage::Setup, "outbox", results::Outbox::new())?;
    at(Stage::Setup, "outbox", outbox.add_observation(&observation))?;
    let count = order.count.as_deref();
    let repetitions = match &order.work {
        Work::Observe => Vec::new(),
        Work::Program(program) => {
            let root = at(Stage::Setup, "image", init::prepare_root(&order.root))?;
            at(Stage::Setup, "bundle", init::put_files(&root, &program.files))?;
            let isolate = program.isolate.clone().unwrap_or_default();
            let group = at(Stage::Setup, "cpuset partition", init::isolate("topolab-bundle", &isolate))?;
            if let Some(cpus) = &program.network {
                at(Stage::Setup, "network", init::steer_network(cpus))?;
            }
            let partitions = [(isolate, group), (order.partition.clone(), apart)];
            let partitions = partitions.into_iter().filter_map(|(cpus, group)| Some((cpus, group?))).collect();
            let place = exec::Where { root, partitions };
            at(Stage::Work, "programs", work::run_program(program, &place, count, &mut outbox))?
        }
        Work::Model(model) => at(Stage::Work, "model", work::run_model(model, count, &mut outbox))?,
    };
    kmsg::say(&Marker::Measured);
    at(Stage::Results, "kernel log", outbox.add_log(&kmsg::log()))?;
    at(Stage::Results, "deliver", outbox.deliver(&order.trial, repetitions))?;
    kmsg::say(&Marker::Done);
    Ok(())
}

fn read_order() -> Result<Order, Failure> {
    let text = at(Stage::Setup, ORDER_PATH, std::fs::read(ORDER_PATH))?;
    let order: Order = at(Stage::Setup, ORDER_PATH, serde_json::from_slice(&text))?;
    match order.protocol == PROTOCOL {
        true => Ok(order),
        false => Err((Stage::Setup, format!("the order speaks protocol {}, this agent {PROTOCOL}", order.protocol))),
    }
}

/// `/init enter …`: becomes a program in its place. Exit 127 when it cannot, as shells do.
fn enter() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(2).collect();
    eprintln!("topolab-agent: {}", exec::enter(&words));
    ExitCode::from(127)
}

/// `/init tool NAME ARGUMENT…`: a program of the lab's own, whose JSON goes to standard output.
fn run_tool() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let (name, arguments) = words.split_first().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
    match topolab_tools::run(name, arguments) {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{name}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// `/init model`, with the order on standard input and the record on standard output.
fn run_model() -> ExitCode {
    let order: Result<ModelOrder, _> = serde_json::from_reader(std::io::stdin().lock());
    let record = order.map_err(|e| e.to_string()).and_then(|o| topolab_model::run(&o).map_err(|e| e.to_string()));
    match record.and_then(|r| serde_json::to_string(&r).map_err(|e| e.to_string())) {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}
