//! A bundle on a machine: its parameters' values, the numbers that follow from them and the machine, its commands with all of that
//! put in, and the CPUs where they run. Pure.

use super::model::{Bundle, Kind, Model, Param, Place, Program, Runs, ServiceDecl, Starts, StepDecl};
use crate::fault::{Fault, Outcome};
use crate::topology::{Arch, Level, Topology};
use std::collections::BTreeMap;
use topolab_wire::{CpuSet, ProgramOrder, Ready, Service, Setting, Step};

/// What is known of every machine: CPUs in all, nodes and last-level caches with CPUs, and CPUs of the first of each.
pub(super) const FACTS: &[&str] = &["cpus", "nodes", "llcs", "node_cpus", "llc_cpus"];

/// What is known of the guests' architecture, in words: its name, Debian's, and the GNU triplet.
pub(super) const WORDS: &[&str] = &["arch", "debian_arch", "triplet"];

/// The name of the fact that a parameter such as `client_node` brings along: the number of that node's CPUs.
pub(super) fn node_fact(param: &Param) -> Option<String> {
    let number = matches!(param.kind, Kind::Number { .. });
    (number && param.name.ends_with("_node")).then(|| format!("{}_cpus", param.name))
}

/// The units that a place may name.
const UNITS: &[(&str, Option<Level>)] = &[
    ("node", Some(Level::Node)),
    ("package", Some(Level::Package)),
    ("die", Some(Level::Die)),
    ("module", Some(Level::Module)),
    ("core", Some(Level::Core)),
    // The level that the scheduler takes for the last-level cache is the topology's to say.
    ("llc", None),
];

/// A bundle's values and order on one machine.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// Parameters and what follows from them.
    pub values: BTreeMap<String, Setting>,
    /// What runs.
    pub runs: Ordered,
}

/// What runs on a machine: programs with their commands, or a model with what it is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Ordered {
    /// Programs; how often is the run's to say.
    Programs(Box<ProgramOrder>),
    /// A model.
    Model {
        /// Its name.
        name: String,
        /// Its parameters.
        params: BTreeMap<String, Setting>,
        /// The text of the profile that it runs.
        profile: Option<String>,
    },
}

impl Bundle {
    /// The parameters' values: the defaults with what the user gave, checked.
    pub fn values(&self, given: &[(String, String)]) -> Outcome<BTreeMap<String, Setting>> {
        let mut values: BTreeMap<String, Setting> =
            self.params.iter().map(|p| (p.name.clone(), p.default.clone())).collect();
        for (name, text) in given {
            let Some(param) = self.params.iter().find(|p| p.name == *name) else {
                let known: Vec<&str> = self.params.iter().map(|p| p.name.as_str()).collect();
                return Err(Fault::input(format!("bundle {} has no parameter `{name}`", self.name))
                    .help(format!("it has: {}", known.join(" "))));
            };
            let (value, rule) = match &param.kind {
                Kind::Number { min, max } => {
                    let number = text.parse().ok().filter(|value| (*min..=*max).contains(value));
                    (number.map(Setting::Number), format!("a whole number from {min} to {max}"))
                }
                Kind::Choice(words) => {
                    let words: Vec<&str> = words.iter().map(|choice| choice.word.as_str()).collect();
                    let word = words.iter().find(|word| *word == text).map(|word| word.to_string());
                    (word.map(Setting::Word), format!("one of {}", words.join(", ")))
                }
            };
            let value = value.ok_or_else(|| Fault::input(format!("-p {name}={text}: {rule} is needed")))?;
            values.insert(name.clone(), value);
        }
        Ok(values)
    }
}

/// Resolves a bundle with these values on a machine.
pub fn resolve(
    bundle: &Bundle,
    values: &BTreeMap<String, Setting>,
    topology: &Topology,
    arch: Arch,
) -> Outcome<Resolved> {
    let wrong = |what: String| Fault::input(format!("bundle {} on {}: {what}", bundle.name, topology.name));
    let mut all = values.clone();
    let facts = facts(topology);
    let mut numbers: BTreeMap<String, i64> = facts.clone();
    for (name, value) in values {
        match value {
            Setting::Number(number) => {
                numbers.insert(name.clone(), *number);
            }
            Setting::Word(_) => {}
        }
    }
    let nodes = topology.present_units(Level::Node);
    for param in &bundle.params {
        if let (Some(fact), Some(Setting::Number(node))) = (node_fact(param), values.get(&param.name)) {
            // A node that is not there is said where it is used as a place; a parameter may also mean "none".
            let cpus = usize::try_from(*node).ok().and_then(|node| nodes.get(node));
            if cpus.is_none() && bundle.derived.iter().any(|(_, sum)| sum.names().contains(&fact.as_str())) {
                return Err(wrong(format!("{}: there is no node {node} on this machine", param.name)));
            }
            numbers.insert(fact, cpus.map_or(0, CpuSet::len) as i64);
        }
    }
    for (name, sum) in &bundle.derived {
        let value = sum.value(&numbers).map_err(|e| wrong(format!("{name}: {e}")))?;
        all.insert(name.clone(), Setting::Number(value));
    }
    let mut filling = all.clone();
    for param in &bundle.params {
        if let (Kind::Choice(choices), Some(Setting::Word(word))) = (&param.kind, values.get(&param.name)) {
            let text = choices.iter().find(|choice| choice.word == *word).map_or(word, |choice| &choice.text);
            filling.insert(param.name.clone(), Setting::Word(text.clone()));
        }
    }
    filling.extend(facts.into_iter().map(|(name, value)| (name, Setting::Number(value))));
    let words = [arch.to_string(), arch.debian_name().to_string(), arch.triplet().to_string()];
    filling.extend(WORDS.iter().zip(words).map(|(name, word)| (name.to_string(), Setting::Word(word))));
    let runs = match &bundle.runs {
        Runs::Model(model) => Ordered::Model {
            name: model.name.clone(),
            params: all.iter().filter(|(name, _)| !model.chooses(name)).map(|(n, v)| (n.clone(), v.clone())).collect(),
            profile: profile(model, &filling).map_err(wrong)?,
        },
        Runs::Program(program) => {
            Ordered::Programs(Box::new(On { topology, values: &filling }.program(program).map_err(wrong)?))
        }
    };
    Ok(Resolved { values: all, runs })
}

impl Model {
    /// Whether a parameter only chooses the profile: then it is none of the model's own.
    pub(super) fn chooses(&self, param: &str) -> bool {
        let named = self.profile.as_deref().and_then(|profile| placeholders(profile).ok());
        named.is_some_and(|names| names.contains(&param))
    }
}

fn profile(model: &Model, values: &BTreeMap<String, Setting>) -> Result<Option<String>, String> {
    let Some(written) = &model.profile else { return Ok(None) };
    let name = fill(written, values);
    let there = || model.files.keys().cloned().collect::<Vec<_>>().join(" ");
    let text = model.files.get(&name).ok_or_else(|| format!("there is no profile {name}; there is: {}", there()))?;
    Ok(Some(text.clone()))
}

fn facts(topology: &Topology) -> BTreeMap<String, i64> {
    let (nodes, llcs) = (topology.present_units(Level::Node), topology.present_units(topology.llc));
    let first = |units: &[CpuSet]| units.first().map_or(0, CpuSet::len);
    let counts = [topology.present().len(), nodes.len(), llcs.len(), first(&nodes), first(&llcs)];
    FACTS.iter().zip(counts).map(|(name, count)| (name.to_string(), count as i64)).collect()
}

struct On<'a> {
    topology: &'a Topology,
    values: &'a BTreeMap<String, Setting>,
}

impl On<'_> {
    fn program(&self, program: &Program) -> Result<ProgramOrder, String> {
        let order = self.order(program)?;
        let own = order.isolate.clone().unwrap_or_default();
        if self.topology.present().difference(&own.union(&self.topology.apart())).is_empty() {
            return Err("isolate would leave no CPU for everything else".into());
        }
        let taken = own.intersection(&self.topology.apart());
        if !taken.is_empty() {
            return Err(format!("isolate: the machine itself isolates {taken} already"));
        }
        // The kernel would cut a mask that is partly in a partition to what is outside, without a word.
        let services = order.services.iter().map(|service| &service.step);
        for step in services.chain(&order.prepare).chain([&order.measured]) {
            let Some(cpus) = &step.cpus else { continue };
            for partition in [&own, &self.topology.placement.partition] {
                if !cpus.intersection(partition).is_empty() && !cpus.is_subset(partition) {
                    return Err(format!(
                        "{} runs on {cpus}, of which {} are isolated: all of them or none",
                        step.argv.first().map_or("a program", String::as_str),
                        cpus.intersection(partition)
                    ));
                }
            }
        }
        Ok(order)
    }

    fn order(&self, program: &Program) -> Result<ProgramOrder, String> {
        Ok(ProgramOrder {
            prepare: program.prepare.iter().map(|step| self.step(step)).collect::<Result<_, _>>()?,
            services: program.services.iter().map(|service| self.service(service)).collect::<Result<_, _>>()?,
            measured: self.step(&program.measured)?,
            isolate: program.isolate.as_ref().map(|place| self.cpus(place)).transpose()?.flatten(),
            network: match &program.network {
                None => None,
                Some(place) => Some(self.cpus(place)?.unwrap_or_else(|| self.topology.present())),
            },
            files: program.files.clone(),
            warmup: program.warmup,
            repetitions: 0,
        })
    }

    fn step(&self, step: &StepDecl) -> Result<Step, String> {
        Ok(Step {
            // A word that was written empty is meant; one that a choice left empty is none.
            argv: step
                .argv
                .iter()
                .map(|word| (word, fill(word, self.values)))
                .filter(|(written, filled)| !filled.is_empty() || written.is_empty())
                .map(|(_, filled)| filled)
                .collect(),
            env: step.env.iter().map(|(name, value)| (name.clone(), fill(value, self.values))).collect(),
            cpus: self.cpus(&step.cpus)?,
            folder: step.folder.as_ref().map(|folder| fill(folder, self.values)),
            deadline_ms: step.deadline_s.saturating_mul(1000),
        })
    }

    fn service(&self, service: &ServiceDecl) -> Result<Service, String> {
        let ready = match &service.ready {
            Starts::Tcp(port) => {
                let text = fill(port, self.values);
                Ready::Tcp(text.parse().map_err(|_| format!("service {}: `{text}` is no TCP port", service.name))?)
            }
            Starts::File(path) => Ready::File(fill(path, self.values)),
            Starts::Says(text) => Ready::Says(fill(text, self.values)),
        };
        Ok(Service { name: service.name.clone(), step: self.step(&service.step)?, ready })
    }

    /// The CPUs of a place; `None` for all of them.
    fn cpus(&self, place: &Place) -> Result<Option<CpuSet>, String> {
        let text = fill(&place.0, self.values);
        let (negated, rest) = text.strip_prefix("not ").map_or((false, text.as_str()), |rest| (true, rest));
        let named = match (rest, rest.split_once(':')) {
            ("all", _) => return if negated { Err("`not all` leaves no CPU".into()) } else { Ok(None) },
            ("none", _) => return Ok(None),
            (_, Some(("cpus", list))) => list.parse::<CpuSet>().map_err(|e| format!("`{text}`: {e}"))?,
            (_, Some((unit, number))) => {
                self.unit(unit, number).ok_or_else(|| format!("there is no {unit} {number} on this machine"))?
            }
            (_, None) => return Err(format!("`{text}` is no place")),
        };
        let present = self.topology.present();
        if rest.starts_with("cpus:") && !named.is_subset(&present) {
            return Err(format!("`{text}`: CPUs {} are not on this machine", named.difference(&present)));
        }
        let cpus = if negated { present.difference(&named) } else { named.intersection(&present) };
        match cpus.is_empty() {
            true => Err(format!("`{text}` has no CPU on this machine")),
            false => Ok(Some(cpus)),
        }
    }

    fn unit(&self, unit: &str, number: &str) -> Option<CpuSet> {
        let (_, level) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let units = self.topology.present_units(level.unwrap_or(self.topology.llc));
        units.get(number.parse::<usize>().ok()?).cloned()
    }
}

/// Whether a place is written as one; its numbers are looked at when the machine is known.
pub(super) fn check_place(text: &str) -> Result<(), String> {
    let rest = text.strip_prefix("not ").unwrap_or(text);
    let known = match rest.split_once(':') {
        None => matches!(rest, "all" | "none") || placeholders(rest).is_ok_and(|names| !names.is_empty()),
        Some((unit, _)) => unit == "cpus" || unit.contains('{') || UNITS.iter().any(|(name, _)| *name == unit),
    };
    match known {
        true => Ok(()),
        false => Err(format!(
            "`{text}` is no place: all, none, cpus:LIST, or a number of node, llc, package, die, module, core, such as node:0; `not` in front turns it round"
        )),
    }
}

/// The names between `{` and `}`; `{{` and `}}` are the brackets themselves.
pub(super) fn placeholders(text: &str) -> Result<Vec<&str>, String> {
    let mut names = Vec::new();
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        if rest[open + 1..].starts_with('{') {
            rest = &rest[open + 2..];
            continue;
        }
        let close = rest[open..].find('}').ok_or("`{` without `}`; a bracket itself is written twice")?;
        names.push(&rest[open + 1..open + close]);
        rest = &rest[open + close + 1..];
    }
    Ok(names)
}

/// A text with the values put in.
fn fill(text: &str, values: &BTreeMap<String, Setting>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let here = &rest[at..];
        if here.starts_with("{{") || here.starts_with("}}") {
            out.push_str(&here[..1]);
            rest = &here[2..];
            continue;
        }
        let end = here.find('}').map_or(here.len(), |close| close + 1);
        let name = here[..end].trim_matches(['{', '}']);
        match values.get(name) {
            Some(value) => out.push_str(&value.to_string()),
            None => out.push_str(&here[..end]),
        }
        rest = &here[end..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundle::load_bundle;
    use crate::topology::load;

    fn cpus(text: &str) -> Result<Option<CpuSet>, String> {
        let topology = load("cwf-snc3@1/12").expect("built in");
        let values =
            BTreeMap::from([("n".to_string(), Setting::Number(1)), ("nic".into(), Setting::Word("node:2".into()))]);
        On { topology: &topology, values: &values }.cpus(&Place(text.into()))
    }

    #[test]
    fn places_are_looked_up_on_the_machine() {
        let set = |text: &str| cpus(text).expect(text).map(|cpus| cpus.to_string());
        assert_eq!(set("all"), None);
        assert_eq!(set("node:{n}").as_deref(), Some("8-15"));
        assert_eq!(set("llc:0").as_deref(), Some("0-7"));
        assert_eq!(set("not node:0").as_deref(), Some("8-23"));
        assert_eq!(set("cpus:1,3-4").as_deref(), Some("1,3-4"));
        assert_eq!(set("{nic}").as_deref(), Some("16-23"));
        assert!(cpus("node:3").is_err_and(|e| e.contains("no node 3")));
        assert!(cpus("cpus:20-30").is_err_and(|e| e.contains("CPUs 24-30 are not on this machine")));
        assert!(check_place("nod:1").is_err() && check_place("{nic}").is_ok() && check_place("some").is_err());
    }

    #[test]
    fn values_are_put_in_anywhere() {
        let values = BTreeMap::from([("n".to_string(), Setting::Number(7))]);
        assert_eq!(fill("--threads={n} {{x}} {n}{n}", &values), "--threads=7 {x} 77");
        assert_eq!(placeholders("a{n}b{{c}}{d}"), Ok(vec!["n", "d"]));
        assert!(placeholders("{n").is_err());
    }

    #[test]
    fn parameters_are_checked_and_put_in() {
        let bundle = load_bundle("sched-pipe").expect("built in");
        let given = |name: &str, value: &str| bundle.values(&[(name.to_string(), value.to_string())]);
        let values = given("loops", "7").expect("in range");
        let resolved = resolve(&bundle, &values, &load("smoke").expect("built in"), Arch::X86_64).expect("resolved");
        assert!(matches!(resolved.runs, Ordered::Programs(order) if order.measured.argv.contains(&"7".to_string())));
        assert!(given("loops", "0").is_err() && given("loops", "x").is_err() && given("lops", "1").is_err());
    }
}
