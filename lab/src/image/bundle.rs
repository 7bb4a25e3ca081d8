//! Bundles: programs or models, their parameters, and how their numbers are read, declared in `bundle.toml`.

use crate::fault::{Fault, Outcome};
use include_dir::{Dir, include_dir};
use regex::Regex;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use topolab_wire::{Clock, Setting, Value};

static BUILT_IN: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../images/bundles");

/// Which direction of a metric is an improvement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// A fact beside the verdict.
    Neither,
}

/// A parameter.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct Param {
    /// Its name on the command line.
    pub name: String,
    /// What it means, with its unit.
    pub about: String,
    /// Its value unless given.
    pub default: i64,
    /// Least value.
    pub min: i64,
    /// Largest value.
    pub max: i64,
}

/// A metric, or several by a name that ends in `*`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, serde::Serialize)]
#[serde(deny_unknown_fields)]
pub struct MetricDecl {
    /// Name; a `*` at the end stands for anything.
    pub name: String,
    /// Unit.
    pub unit: String,
    /// Direction.
    pub better: Better,
    /// Recorded and judged, but left out of the table.
    #[serde(default)]
    pub hidden: bool,
    /// For a program: the expression whose first group is the number, in its standard output.
    pub regex: Option<String>,
}

/// What a bundle runs.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Runs {
    /// A model by name.
    Model(String),
    /// A program of an image.
    Program {
        /// The image.
        image: String,
        /// Program and arguments; `{param}` stands for a parameter.
        argv: Vec<String>,
        /// Runs that do not count.
        warmup: u32,
        /// Deadline of one run, in seconds of guest time.
        deadline_s: u64,
    },
}

/// A checked bundle.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Bundle {
    /// Its name.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Clocks on which it means something.
    pub clocks: Vec<Clock>,
    /// What it runs.
    pub runs: Runs,
    /// Kernel symbols that it needs, as configuration lines.
    pub kernel: Vec<String>,
    /// Parameters.
    pub params: Vec<Param>,
    /// Metrics.
    pub metrics: Vec<MetricDecl>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: u32,
    title: String,
    clocks: Vec<Clock>,
    #[serde(default)]
    kernel: Vec<String>,
    model: Option<ModelTable>,
    program: Option<ProgramTable>,
    #[serde(default)]
    param: Vec<Param>,
    metric: Vec<MetricDecl>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelTable {
    name: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProgramTable {
    image: String,
    argv: Vec<String>,
    #[serde(default)]
    warmup: u32,
    deadline_s: u64,
}

/// The names of the built-in bundles, sorted.
pub fn bundle_names() -> Vec<String> {
    let mut names: Vec<String> =
        BUILT_IN.dirs().filter_map(|dir| Some(dir.path().file_name()?.to_str()?.to_string())).collect();
    names.sort();
    names
}

/// Loads a bundle by name, or from a folder that has a bundle.toml.
pub fn load_bundle(spec: &str) -> Outcome<Bundle> {
    if spec.contains('/') {
        let folder = Path::new(spec);
        let path = folder.join("bundle.toml");
        let text =
            std::fs::read_to_string(&path).map_err(|e| Fault::input(format!("bundle {}: {e}", path.display())))?;
        let name = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        return parse(&name, &path.display().to_string(), &text);
    }
    let text = BUILT_IN.get_file(format!("{spec}/bundle.toml")).and_then(|file| file.contents_utf8());
    let text = text.ok_or_else(|| {
        Fault::input(format!("no bundle is named `{spec}`"))
            .help(format!("a folder's path, or one of: {}", bundle_names().join(" ")))
    })?;
    parse(spec, &format!("{spec}/bundle.toml"), text)
}

fn parse(name: &str, origin: &str, text: &str) -> Outcome<Bundle> {
    // toml's own message shows line, column and the marked text.
    let file: File = toml::from_str(text).map_err(|e| Fault::input(format!("{origin}: {}", e.message())).detail(e))?;
    let wrong = |what: String| Err(Fault::input(format!("{origin}: {what}")));
    if file.schema != 1 {
        return wrong(format!("schema {} is not known; this program reads schema 1", file.schema));
    }
    let runs = match (file.model, file.program) {
        (Some(model), None) => Runs::Model(model.name),
        (None, Some(p)) => Runs::Program { image: p.image, argv: p.argv, warmup: p.warmup, deadline_s: p.deadline_s },
        (Some(_), Some(_)) | (None, None) => {
            return wrong("exactly one of [model] and [program] says what runs".into());
        }
    };
    if let Some(line) = file.kernel.iter().find(|line| !line.starts_with("CONFIG_") || !line.contains('=')) {
        return wrong(format!("kernel: `{line}` is no line such as CONFIG_EPOLL=y"));
    }
    if let Some(p) = file.param.iter().find(|p| p.min > p.max || !(p.min..=p.max).contains(&p.default)) {
        return wrong(format!("parameter {}: the default {} is not within {} to {}", p.name, p.default, p.min, p.max));
    }
    for metric in &file.metric {
        match (&runs, &metric.regex) {
            (Runs::Program { .. }, None) => {
                return wrong(format!("metric {}: a program's metric needs a regex", metric.name));
            }
            (Runs::Model(_), Some(_)) => {
                return wrong(format!("metric {}: a model reports its metrics itself", metric.name));
            }
            (Runs::Program { .. }, Some(expression)) => match Regex::new(expression) {
                Ok(regex) if regex.captures_len() == 2 => {}
                Ok(_) => return wrong(format!("metric {}: the regex needs exactly one group", metric.name)),
                Err(e) => return wrong(format!("metric {}: {e}", metric.name)),
            },
            (Runs::Model(_), None) => {}
        }
    }
    if let Runs::Program { argv, .. } = &runs
        && let Some(unknown) =
            argv.iter().filter_map(|word| placeholder(word)).find(|p| !file.param.iter().any(|q| q.name == *p))
    {
        return wrong(format!("argv names the parameter {{{unknown}}}, which is not declared"));
    }
    Ok(Bundle {
        name: name.into(),
        title: file.title,
        clocks: file.clocks,
        runs,
        kernel: file.kernel,
        params: file.param,
        metrics: file.metric,
    })
}

/// `{name}` → `name`.
fn placeholder(word: &str) -> Option<&str> {
    word.strip_prefix('{')?.strip_suffix('}')
}

impl Bundle {
    /// The parameters' values: the defaults with what the user gave, checked.
    pub fn values(&self, given: &[(String, String)]) -> Outcome<BTreeMap<String, Setting>> {
        let mut values: BTreeMap<String, Setting> =
            self.params.iter().map(|p| (p.name.clone(), Setting::Number(p.default))).collect();
        for (name, text) in given {
            let Some(param) = self.params.iter().find(|p| p.name == *name) else {
                let known: Vec<&str> = self.params.iter().map(|p| p.name.as_str()).collect();
                return Err(Fault::input(format!("bundle {} has no parameter `{name}`", self.name))
                    .help(format!("it has: {}", known.join(" "))));
            };
            let value = text.parse().ok().filter(|value| (param.min..=param.max).contains(value));
            let value = value.ok_or_else(|| {
                Fault::input(format!("-p {name}={text}: a whole number from {} to {} is needed", param.min, param.max))
            })?;
            values.insert(name.clone(), Setting::Number(value));
        }
        Ok(values)
    }

    /// A program's words with the values put in.
    pub fn words(argv: &[String], values: &BTreeMap<String, Setting>) -> Vec<String> {
        let value = |word: &String| placeholder(word).and_then(|name| values.get(name)).map(Setting::to_string);
        argv.iter().map(|word| value(word).unwrap_or_else(|| word.clone())).collect()
    }

    /// The declaration that a metric's name falls under.
    pub fn metric(&self, name: &str) -> Option<&MetricDecl> {
        let fits = |decl: &&MetricDecl| match decl.name.strip_suffix('*') {
            Some(stem) => name.starts_with(stem),
            None => decl.name == name,
        };
        self.metrics.iter().find(fits)
    }

    /// A program's metrics out of its standard output: by name. The error names the metric.
    pub fn read(&self, stdout: &str) -> Result<BTreeMap<String, Value>, String> {
        let mut found = BTreeMap::new();
        for metric in &self.metrics {
            let Some(expression) = &metric.regex else { continue };
            let captured = Regex::new(expression)
                .ok()
                .and_then(|regex| Some(regex.captures(stdout)?.get(1)?.as_str().to_string()));
            let value: Option<f64> = captured.and_then(|text| text.parse().ok());
            let value = value
                .filter(|v| v.is_finite())
                .ok_or_else(|| format!("no number for {} (regex {expression})", metric.name))?;
            found.insert(metric.name.clone(), Value { unit: metric.unit.clone(), value, thin: false });
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_bundle_is_right() {
        for name in bundle_names() {
            load_bundle(&name).expect("a built-in bundle");
        }
    }

    #[test]
    fn perfs_words_are_read() {
        let bundle = load_bundle("sched-pipe").expect("built in");
        let output = "# Running 'sched/pipe' benchmark:\n# Executed 2000 pipe operations between two processes\n\n     Total time: 0.027 [sec]\n\n      13.390000 usecs/op\n          74682 ops/sec\n";
        let metrics = bundle.read(output).expect("metrics");
        let us = &metrics["usecs_per_op"];
        assert_eq!((us.unit.as_str(), us.value), ("us", 13.39));
        assert_eq!(metrics["ops_per_s"].value, 74682.0);
        assert!(bundle.read("perf: not found").is_err_and(|e| e.contains("usecs_per_op")));
    }

    #[test]
    fn parameters_are_checked_and_put_in() {
        let bundle = load_bundle("sched-pipe").expect("built in");
        let given = |name: &str, value: &str| bundle.values(&[(name.to_string(), value.to_string())]);
        let values = given("loops", "7").expect("in range");
        assert_eq!(Bundle::words(&["-l".into(), "{loops}".into()], &values), ["-l", "7"]);
        assert!(given("loops", "0").is_err() && given("loops", "x").is_err() && given("lops", "1").is_err());
    }

    #[test]
    fn a_wrong_bundle_is_refused_with_its_place() {
        for (text, says) in [
            ("schema = 1\ntitle = \"x\"\nclocks = [\"real\"]\nmetric = []\n", "exactly one of"),
            ("schema = 1\ntitel = \"x\"\n", "unknown field `titel`"),
            (
                "schema = 1\ntitle = \"x\"\nclocks = [\"real\"]\n[program]\nimage = \"perf\"\nargv = [\"{n}\"]\ndeadline_s = 1\n[[metric]]\nname = \"m\"\nunit = \"s\"\nbetter = \"lower\"\nregex = 'a'\n",
                "exactly one group",
            ),
        ] {
            let fault = parse("b", "b/bundle.toml", text).expect_err(says);
            assert!(fault.to_string().contains(says), "{fault}");
        }
    }
}
