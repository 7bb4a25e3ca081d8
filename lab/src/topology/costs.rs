//! What a real machine charges and an emulator does not: declared in `[costs]`, off unless asked for, burned by the busy module
//! beside the work of models (lab/busy, `costs`). Pure.

use super::model::{Level, Topology};
use std::collections::BTreeMap;
use std::fmt;

/// A cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cost {
    /// Moving to another thread of the same core, ns.
    Smt,
    /// Moving to another core of the same last-level cache, ns.
    Core,
    /// Moving to another last-level cache, ns.
    Llc,
    /// Moving to another node, on top of that, ns.
    Node,
    /// Running on another node than where the task began to, permille of its work.
    Remote,
    /// Running beside a busy sibling, permille of its work.
    Sibling,
    /// Waking a CPU that was idle for long, ns.
    Cold,
    /// What long is, ns.
    ColdAfter,
}

impl Cost {
    const ALL: [(Self, &'static str); 8] = [
        (Self::Smt, "smt"),
        (Self::Core, "core"),
        (Self::Llc, "llc"),
        (Self::Node, "node"),
        (Self::Remote, "remote"),
        (Self::Sibling, "sibling"),
        (Self::Cold, "cold"),
        (Self::ColdAfter, "cold_after"),
    ];

    /// Its name in files and on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(cost, _)| *cost == self).map_or("", |(_, name)| name)
    }

    /// A cost by its name; the error lists all of them.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(_, known)| *known == name).map(|(cost, _)| *cost);
        found.ok_or_else(|| {
            let all: Vec<&str> = Self::ALL.iter().map(|(_, name)| *name).collect();
            format!("`{name}` is no cost; there is: {}", all.join(" "))
        })
    }

    fn is_share(self) -> bool {
        matches!(self, Self::Remote | Self::Sibling)
    }

    /// A value as written: `50us`, `1.5ms`, `800ns`, or `12%` of the work.
    pub fn value(self, text: &str) -> Result<u64, String> {
        let units: &[(&str, f64)] =
            if self.is_share() { &[("%", 10.0)] } else { &[("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6)] };
        let read = units.iter().find_map(|(unit, factor)| {
            let number: f64 = text.trim().strip_suffix(unit)?.trim().parse().ok()?;
            Some(number * factor)
        });
        // A second, or ten times the work: a bound against a typing error.
        let most = if self.is_share() { 10_000.0 } else { 1e9 };
        let good = read.filter(|value| (0.0..=most).contains(value)).map(|value| value.round() as u64);
        let form =
            if self.is_share() { "a share such as 12%" } else { "a time such as 50us, 1.5ms or 800ns, at most 1000ms" };
        good.ok_or_else(|| format!("{}: `{text}` is not {form}", self.name()))
    }

    /// A value for people.
    pub fn text(self, value: u64) -> String {
        match (self.is_share(), value) {
            (true, permille) => format!("{} %", permille as f64 / 10.0),
            (false, ns) if ns % 1_000_000 == 0 && ns > 0 => format!("{} ms", ns / 1_000_000),
            (false, ns) if ns >= 1000 => format!("{} µs", ns as f64 / 1e3),
            (false, ns) => format!("{ns} ns"),
        }
    }
}

/// The costs of a machine; what is not named costs nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct Costs(BTreeMap<Cost, u64>);

impl Costs {
    /// Whether nothing is charged.
    pub fn is_empty(&self) -> bool {
        self.0.values().all(|value| *value == 0)
    }

    /// Sets one.
    pub fn set(&mut self, cost: Cost, value: u64) {
        self.0.insert(cost, value);
    }

    /// The busy module's lines on a machine. Of one length whatever the values, since a guest's memory layout follows its order's
    /// size.
    pub fn lines(&self, topology: &Topology) -> Vec<String> {
        let at = |level: Level| topology.units(level);
        let (cores, llcs, nodes) = (at(Level::Core), topology.llcs(), at(Level::Node));
        let index =
            |units: &[topolab_wire::CpuSet], cpu: u32| units.iter().position(|unit| unit.contains(cpu)).unwrap_or(0);
        let place = |cpu: u32| format!("cpu {cpu} {} {} {}", index(&cores, cpu), index(&llcs, cpu), index(&nodes, cpu));
        let places = topology.present().iter().map(place).collect::<Vec<_>>();
        let values = self.0.iter().map(|(cost, value)| format!("{} {value:010}", cost.name()));
        places.into_iter().chain(values).collect()
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> =
            self.0.iter().map(|(cost, value)| format!("{} {}", cost.name(), cost.text(*value))).collect();
        f.write_str(&all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::load;

    #[test]
    fn values_are_times_or_shares() {
        assert_eq!(Cost::Llc.value("50us"), Ok(50_000));
        assert_eq!(Cost::Llc.value("1.5ms"), Ok(1_500_000));
        assert_eq!(Cost::Remote.value("12%"), Ok(120));
        for (cost, text) in
            [(Cost::Llc, "50"), (Cost::Llc, "12%"), (Cost::Remote, "5us"), (Cost::Llc, "-1us"), (Cost::Llc, "2000ms")]
        {
            assert!(cost.value(text).is_err(), "{text}");
        }
        assert!(Cost::parse("l3").is_err_and(|e| e.contains("llc")));
    }

    #[test]
    fn lines_have_one_length_and_name_every_cpu() {
        let topology = load("cwf-snc3@1/12").expect("built in");
        let lines = |value: u64| {
            let mut costs = Costs::default();
            costs.set(Cost::Llc, value);
            costs.lines(&topology).join("\n")
        };
        assert_eq!(lines(0).len(), lines(200_000).len());
        assert!(
            lines(7).starts_with("cpu 0 0 0 0\n")
                && lines(7).contains("cpu 23 23 2 2\n")
                && lines(7).ends_with("llc 0000000007")
        );
    }

    #[test]
    fn costs_are_printed_for_people() {
        let mut costs = Costs::default();
        assert!(costs.is_empty());
        costs.set(Cost::Node, 100_500);
        costs.set(Cost::Remote, 125);
        assert_eq!(costs.to_string(), "node 100.5 µs, remote 12.5 %");
    }
}
