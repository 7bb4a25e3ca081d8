//! `topolab cache …`

use super::{Context, Format};
use crate::cache::{self, Entry};
use crate::fault::Outcome;
use clap::{Args, Subcommand};

/// Cache commands.
#[derive(Debug, Subcommand)]
pub(super) enum CacheCommand {
    /// What the cache holds, what was used last first.
    List,
    /// Removes what was used longest ago; everything can be made again.
    Prune(PruneArgs),
}

#[derive(Debug, Args)]
pub(super) struct PruneArgs {
    /// How much may stay: 20G, 512M. What was used within the last hour stays in any case.
    #[arg(long, value_name = "SIZE", value_parser = cache::parse_size)]
    keep: u64,
}

pub(super) fn run(command: &CacheCommand, context: &Context) -> Outcome<u8> {
    let dir = context.cache()?;
    let (entries, word) = match command {
        CacheCommand::List => (cache::list(&dir)?, "in all"),
        CacheCommand::Prune(args) => (cache::prune(&dir, args.keep)?, "removed"),
    };
    match context.format {
        Format::Json => context.print_json(&serde_json::json!({
            "schema": "topolab/1", "command": "cache", "entries": entries,
        }))?,
        Format::Text | Format::Markdown => print(&entries, word),
    }
    Ok(0)
}

fn print(entries: &[Entry], word: &str) {
    for entry in entries {
        let hours = entry.used.elapsed().map_or(0, |age| age.as_secs() / 3600);
        let age = if hours < 48 { format!("{hours} h") } else { format!("{} d", hours / 24) };
        println!("{:>8} MiB  {:<9} {:>6}  {}", entry.bytes >> 20, entry.kind, age, entry.name);
    }
    println!("{:>8} MiB  {word}", entries.iter().map(|entry| entry.bytes).sum::<u64>() >> 20);
}
