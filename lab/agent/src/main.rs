//! PID 1 of a topolab guest; see the library for the order of things.

use std::process::ExitCode;
use topolab_agent::{exec, init, kmsg, observe, results};
use topolab_wire::{Marker, ModelOrder, ORDER_PATH, Order, PROTOCOL, Work};

/// Why the agent gave up: a stage and a reason, for [`Marker::Failed`].
type Failure = String;

fn main() -> ExitCode {
    // The kernel hands PID 1 whatever it does not know of its command line, so words only count for other processes.
    if std::process::id() == 1 {
        if let Err(why) = life() {
            kmsg::say(&Marker::Failed(why));
        }
        return init::power_off();
    }
    match std::env::args().nth(1).as_deref() {
        Some("model") => run_model(),
        Some("enter") => enter(),
        Some(_) | None => {
            eprintln!("topolab-agent: this program is PID 1 of a topolab guest and does nothing elsewhere");
            ExitCode::from(2)
        }
    }
}

/// The whole life of PID 1.
fn life() -> Result<(), Failure> {
    init::mount_kernel_filesystems().map_err(|e| format!("mount: {e}"))?;
    kmsg::say(&Marker::Hello(PROTOCOL));
    let order = read_order()?;
    if order.busy_module {
        init::load_module("/topolab/busy.ko").map_err(|e| format!("busy module: {e}"))?;
    }
    let observation = observe::observe(std::path::Path::new("/")).map_err(|e| format!("observe: {e}"))?;
    kmsg::say(&Marker::Observed);

    let mut outbox = results::Outbox::new().map_err(|e| format!("results: {e}"))?;
    outbox.add_observation(&observation).map_err(|e| format!("results: {e}"))?;
    let repetitions = match &order.work {
        Work::Observe => Vec::new(),
        Work::Program(program) => {
            let root = init::prepare_root(&order.root).map_err(|e| format!("image: {e}"))?;
            exec::run_program(program, &root, &mut outbox).map_err(|e| format!("program: {e}"))?
        }
        Work::Model(model) => exec::run_model(model, &mut outbox).map_err(|e| format!("model: {e}"))?,
    };
    kmsg::say(&Marker::Measured);
    outbox.deliver(&order.trial, repetitions).map_err(|e| format!("results: {e}"))?;
    kmsg::say(&Marker::Done);
    Ok(())
}

fn read_order() -> Result<Order, Failure> {
    let text = std::fs::read(ORDER_PATH).map_err(|e| format!("order: {ORDER_PATH}: {e}"))?;
    let order: Order = serde_json::from_slice(&text).map_err(|e| format!("order: {ORDER_PATH}: {e}"))?;
    match order.protocol == PROTOCOL {
        true => Ok(order),
        false => Err(format!("order: protocol {} where this agent speaks {PROTOCOL}", order.protocol)),
    }
}

/// `/init enter ROOT PROGRAM ARGUMENT…`: becomes the program inside the root. Exit 127 when it cannot, as shells do.
fn enter() -> ExitCode {
    let words: Vec<_> = std::env::args_os().skip(2).collect();
    match words.split_first() {
        Some((root, argv)) => eprintln!("topolab-agent: {}", exec::enter(std::path::Path::new(root), argv)),
        None => eprintln!("topolab-agent: enter: no root given"),
    }
    ExitCode::from(127)
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
