//! Finds topologies: by name among those built in, or by path.

use super::{Topology, parse, scale};
use crate::fault::{Fault, Outcome};
use include_dir::{Dir, include_dir};
use miette::{GraphicalReportHandler, GraphicalTheme, NamedSource, Report};
use std::path::Path;

static BUILT_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../topologies");

/// The names of the built-in machines, sorted.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = BUILT_IN
        .files()
        .filter_map(|file| Some(file.path().file_name()?.to_str()?.strip_suffix(".toml")?.to_string()))
        .collect();
    names.sort();
    names
}

/// Loads `NAME`, `FILE`, `NAME@1/N` or `FILE@1/N`.
pub fn load(spec: &str) -> Outcome<Topology> {
    let (base, by) = match spec.rsplit_once("@1/") {
        Some((base, by)) => {
            let by = by.parse().map_err(|_| Fault::input(format!("`{spec}`: the scale after @1/ is not a number")))?;
            (base, by)
        }
        None => (spec, 1),
    };
    let (name, origin, text) = source(base)?;
    let full = parse(&name, &text).map_err(|e| {
        let message = format!("{origin}: {e}");
        Fault::input(message).detail(render(Report::new(e).with_source_code(NamedSource::new(&origin, text))))
    })?;
    scale(&full, by).map_err(Fault::input)
}

/// A topology's name, where it comes from, and its text.
fn source(base: &str) -> Outcome<(String, String, String)> {
    let looks_like_a_path = base.contains('/') || base.ends_with(".toml");
    if !looks_like_a_path {
        let file = BUILT_IN.get_file(format!("{base}.toml")).and_then(|file| file.contents_utf8());
        let text = file.ok_or_else(|| {
            Fault::input(format!("no topology is named `{base}`"))
                .help(format!("a file's path, or one of: {}", names().join(" ")))
        })?;
        return Ok((base.to_string(), format!("{base}.toml"), text.to_string()));
    }
    let path = Path::new(base);
    let text = std::fs::read_to_string(path).map_err(|e| Fault::input(format!("{base}: {e}")))?;
    let stem = path.file_stem().and_then(|s| s.to_str()).ok_or_else(|| Fault::input(format!("{base}: no name")))?;
    Ok((stem.to_string(), base.to_string(), text))
}

/// A miette report as plain text, for logs and terminals alike.
fn render(report: Report) -> String {
    let mut text = String::new();
    let handler = GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(100);
    match handler.render_report(&mut text, report.as_ref()) {
        Ok(()) => text,
        Err(_) => report.to_string(),
    }
}
