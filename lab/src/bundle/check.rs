//! From a bundle as written to a checked one. Every rejection says file, line and what to do.

use super::model::{
    Bundle, Choice, From, Kind, MetricDecl, Model, Over, Param, Place, Program, Promise, Reading, Runs, ServiceDecl,
    Starts, StepDecl, Supply,
};
use super::place::{FACTS, WORDS, check_place, node_fact, placeholders};
use super::schema::{self, File, NumberOrWord};
use super::sum::Sum;
use crate::fault::{Fault, Outcome};
use crate::topology::Arch;
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use toml::Spanned;
use topolab_wire::Setting;

/// Reads and checks a bundle's text; `files` are those beside it.
pub(super) fn parse(name: &str, origin: &str, text: &str, files: BTreeMap<String, String>) -> Outcome<Bundle> {
    let check = Check { origin, text, names: BTreeSet::new() };
    let file: File = toml::from_str(text).map_err(|e| {
        // What a list of every key says follows in the excerpt; and untagged values are no word for people.
        let said = e.message().lines().next().unwrap_or_default();
        let said = match said {
            said if said.contains("NumberOrWord") => "a whole number or a word is needed",
            said => said.split(", expected one of").next().unwrap_or(said),
        };
        check.at(e.span().unwrap_or(0..0), said).detail(&e)
    })?;
    if *file.schema.get_ref() != 1 {
        let what = format!("schema {} is not known; this program reads schema 1", file.schema.get_ref());
        return Err(check.at(file.schema.span(), what));
    }
    if file.clocks.get_ref().is_empty() {
        return Err(check.at(file.clocks.span(), "clocks is empty: name real, virtual or both"));
    }
    check.all(name, file, files)
}

struct Check<'a> {
    origin: &'a str,
    text: &'a str,
    /// Everything that a placeholder may name.
    names: BTreeSet<String>,
}

impl Check<'_> {
    /// A fault at a place of the file.
    fn at(&self, span: Range<usize>, what: impl std::fmt::Display) -> Fault {
        Fault::at(self.origin, self.text, span.start, what)
    }

    fn all(mut self, name: &str, file: File, files: BTreeMap<String, String>) -> Outcome<Bundle> {
        let params = file.param.iter().map(|param| self.param(param)).collect::<Outcome<Vec<_>>>()?;
        self.names.extend(FACTS.iter().chain(WORDS).map(|fact| fact.to_string()));
        for (param, written) in params.iter().zip(&file.param) {
            if !self.names.insert(param.name.clone()) {
                return Err(self.at(
                    written.name.span(),
                    format!("`{}` is declared twice, or is a fact of the machine", param.name),
                ));
            }
        }
        // A parameter that names a node brings the number of that node's CPUs along.
        self.names.extend(params.iter().filter_map(node_fact));
        let derived = file.derive.iter().map(|(name, sum)| self.derived(name, sum)).collect::<Outcome<Vec<_>>>()?;
        self.names.extend(derived.iter().map(|(name, _)| name.clone()));
        for line in &file.kernel {
            if !line.get_ref().starts_with("CONFIG_") || !line.get_ref().contains('=') {
                return Err(self.at(line.span(), format!("`{}` is no line such as CONFIG_EPOLL=y", line.get_ref())));
            }
        }
        let runs = self.runs(&file, files)?;
        self.twins("metric", file.metric.iter().map(|metric| &metric.name))?;
        self.twins("invariant", file.invariant.iter().map(|promise| &promise.name))?;
        self.twins("service", file.service.iter().map(|service| &service.name))?;
        self.twins("source", file.source.iter().map(|source| &source.name))?;
        let modelled = matches!(runs, Runs::Model(_));
        let metrics = file.metric.iter().map(|metric| self.metric(metric, modelled)).collect::<Outcome<Vec<_>>>()?;
        if metrics.is_empty() {
            return Err(self.at(0..0, "a bundle without a [[metric]] measures nothing"));
        }
        Ok(Bundle {
            name: name.into(),
            title: file.title,
            clocks: file.clocks.into_inner(),
            architectures: self.architectures(&file.architectures)?,
            runs,
            kernel: file.kernel.into_iter().map(Spanned::into_inner).collect(),
            memory_mib: file.memory_mib,
            params,
            derived,
            metrics,
            promises: file.invariant.iter().map(|promise| self.promise(promise)).collect::<Outcome<_>>()?,
            folder: None,
        })
    }

    /// Records go by name, so a name may come once.
    fn twins<'n>(&self, what: &str, names: impl Iterator<Item = &'n Spanned<String>>) -> Outcome<()> {
        let mut seen = BTreeSet::new();
        for name in names {
            if !seen.insert(name.get_ref()) {
                return Err(self.at(name.span(), format!("{what} {} is declared twice", name.get_ref())));
            }
        }
        Ok(())
    }

    fn architectures(&self, written: &[Spanned<String>]) -> Outcome<Vec<Arch>> {
        if written.is_empty() {
            return Ok(Arch::ALL.to_vec());
        }
        let one = |word: &Spanned<String>| {
            Arch::named(word.get_ref()).ok_or_else(|| {
                self.at(word.span(), format!("`{}` is none of x86_64, aarch64, ppc64le", word.get_ref()))
            })
        };
        written.iter().map(one).collect()
    }

    fn param(&self, written: &schema::Param) -> Outcome<Param> {
        let name = self.name(&written.name)?;
        let span = written.default.span();
        let (kind, default) = match (written.default.get_ref(), written.min, written.max, &written.choices) {
            (NumberOrWord::Number(default), Some(min), Some(max), None) => {
                if !(min..=max).contains(default) {
                    return Err(self.at(span, format!("the default {default} of {name} is not within {min} to {max}")));
                }
                (Kind::Number { min, max }, Setting::Number(*default))
            }
            (NumberOrWord::Word(default), None, None, Some(choices)) => {
                if !choices.contains(default) {
                    let choices = choices.join(", ");
                    return Err(self.at(span, format!("the default `{default}` of {name} is none of: {choices}")));
                }
                if let Some(twin) = choices.iter().enumerate().find(|(n, word)| choices[..*n].contains(word)) {
                    return Err(self.at(span, format!("{name}: the choice `{}` is there twice", twin.1)));
                }
                let texts = written.words.as_ref().unwrap_or(choices);
                if texts.len() != choices.len() {
                    return Err(self
                        .at(span, format!("{name}: words has {} entries for {} choices", texts.len(), choices.len())));
                }
                let choice = |(word, text): (&String, &String)| Choice { word: word.clone(), text: text.clone() };
                (Kind::Choice(choices.iter().zip(texts).map(choice).collect()), Setting::Word(default.clone()))
            }
            (_, _, _, _) => {
                let what =
                    format!("{name}: a number needs min and max, a word needs choices, and neither has the other's");
                return Err(self.at(span, what));
            }
        };
        Ok(Param { name, about: written.about.clone(), default, kind })
    }

    fn name(&self, written: &Spanned<String>) -> Outcome<String> {
        let name = written.get_ref();
        let plain = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
        match plain && name.starts_with(|c: char| c.is_ascii_lowercase()) {
            true => Ok(name.clone()),
            false => Err(self.at(written.span(), format!("`{name}`: a name is of lower-case letters, digits and _"))),
        }
    }

    fn derived(&self, name: &str, written: &Spanned<String>) -> Outcome<(String, Sum)> {
        let sum = Sum::parse(written.get_ref()).map_err(|e| self.at(written.span(), format!("{name}: {e}")))?;
        let unknown = sum.names().into_iter().find(|name| !self.names.contains(*name)).map(str::to_string);
        match unknown {
            Some(unknown) => Err(self
                .at(written.span(), format!("{name}: `{unknown}` is neither a parameter nor a fact"))
                .help(format!("facts of the machine: {}", FACTS.join(" ")))),
            None if self.names.contains(name) => {
                Err(self.at(written.span(), format!("`{name}` is a parameter or a fact already")))
            }
            None => Ok((name.to_string(), sum)),
        }
    }

    /// A text whose placeholders are all known.
    fn filled(&self, written: &Spanned<String>) -> Outcome<String> {
        let text = written.get_ref();
        let names = placeholders(text).map_err(|e| self.at(written.span(), e))?;
        match names.into_iter().find(|name| !self.names.contains(*name)) {
            Some(unknown) => Err(self
                .at(written.span(), format!("{{{unknown}}} is not declared"))
                .help(format!("there is: {}", self.names.iter().cloned().collect::<Vec<_>>().join(" ")))),
            None => Ok(text.clone()),
        }
    }

    fn place(&self, written: &Option<Spanned<String>>) -> Outcome<Place> {
        let Some(written) = written else { return Ok(Place("all".into())) };
        let text = self.filled(written)?;
        check_place(&text).map_err(|e| self.at(written.span(), e))?;
        Ok(Place(text))
    }

    fn step(
        &self,
        argv: &[Spanned<String>],
        env: &BTreeMap<String, Spanned<String>>,
        place: (&Option<Spanned<String>>, &Option<Spanned<String>>),
        deadline_s: &Spanned<u64>,
    ) -> Outcome<StepDecl> {
        let (cpus, folder) = place;
        let program = argv.first().ok_or_else(|| self.at(deadline_s.span(), "argv is empty: what shall run?"))?;
        if !program.get_ref().starts_with(['/', '@']) {
            let what = format!(
                "`{}`: a program is an absolute path in the image, or @NAME of the lab's own",
                program.get_ref()
            );
            return Err(self.at(program.span(), what));
        }
        if !(1..=86_400).contains(deadline_s.get_ref()) {
            return Err(self.at(deadline_s.span(), "deadline_s: from 1 to 86400 seconds"));
        }
        Ok(StepDecl {
            argv: argv.iter().map(|word| self.filled(word)).collect::<Outcome<_>>()?,
            env: env.iter().map(|(name, value)| Ok((name.clone(), self.filled(value)?))).collect::<Outcome<_>>()?,
            cpus: self.place(cpus)?,
            folder: folder.as_ref().map(|folder| self.filled(folder)).transpose()?,
            deadline_s: *deadline_s.get_ref(),
        })
    }

    fn runs(&self, file: &File, files: BTreeMap<String, String>) -> Outcome<Runs> {
        match (&file.model, &file.program) {
            (Some(model), None) => {
                let placed = file.placement.isolate.is_some() || file.placement.network.is_some();
                match file.service.is_empty() && file.prepare.is_empty() && file.source.is_empty() && !placed {
                    true => {
                        let profile = model.profile.as_ref().map(|profile| self.filled(profile)).transpose()?;
                        Ok(Runs::Model(Box::new(Model { name: model.name.clone(), profile, files })))
                    }
                    false => Err(self.at(
                        0..0,
                        "[[service]], [[prepare]], [[source]] and [placement] are for programs, not for models",
                    )),
                }
            }
            (None, Some(program)) => self.program(program, file, files).map(|program| Runs::Program(Box::new(program))),
            (Some(_), Some(_)) | (None, None) => {
                Err(self.at(0..0, "exactly one of [model] and [program] says what runs"))
            }
        }
    }

    fn program(
        &self,
        written: &schema::ProgramTable,
        file: &File,
        files: BTreeMap<String, String>,
    ) -> Outcome<Program> {
        if let (None, Some(source)) = (&written.image, file.source.first()) {
            return Err(self
                .at(source.name.span(), format!("source {}: there is no image to put it into", source.name.get_ref()))
                .help("image = \"shell\" is the smallest"));
        }
        let step = |s: &schema::Step| self.step(&s.argv, &s.env, (&s.cpus, &s.folder), &s.deadline_s);
        Ok(Program {
            image: written.image.clone(),
            supplies: file.source.iter().map(|source| self.supply(source)).collect::<Outcome<_>>()?,
            prepare: file.prepare.iter().map(step).collect::<Outcome<_>>()?,
            services: file.service.iter().map(|service| self.service(service)).collect::<Outcome<_>>()?,
            measured: self.step(&written.argv, &written.env, (&written.cpus, &written.folder), &written.deadline_s)?,
            warmup: written.warmup,
            isolate: file.placement.isolate.is_some().then(|| self.place(&file.placement.isolate)).transpose()?,
            network: file.placement.network.is_some().then(|| self.place(&file.placement.network)).transpose()?,
            files,
        })
    }

    fn service(&self, written: &schema::Service) -> Outcome<ServiceDecl> {
        let ready = written.ready.get_ref();
        let ready = match (&ready.tcp, &ready.file, &ready.says) {
            (Some(port), None, None) => Starts::Tcp(port.clone()),
            (None, Some(path), None) => Starts::File(path.clone()),
            (None, None, Some(text)) => Starts::Says(text.clone()),
            (_, _, _) => return Err(self.at(written.ready.span(), "ready: exactly one of tcp, file and says")),
        };
        Ok(ServiceDecl {
            name: self.name(&written.name)?,
            step: self.step(&written.argv, &written.env, (&written.cpus, &written.folder), &written.deadline_s)?,
            ready,
        })
    }

    fn supply(&self, written: &schema::Source) -> Outcome<Supply> {
        let climbs = |path: &&Spanned<String>| path.get_ref().starts_with('/') || path.get_ref().contains("..");
        if let Some(path) = written.take.iter().find(climbs) {
            return Err(self.at(path.span(), format!("`{}` leaves the source's folder", path.get_ref())));
        }
        if written.take.is_empty() {
            return Err(self.at(written.name.span(), "take is empty: nothing of the source would reach the guest"));
        }
        Ok(Supply {
            name: self.name(&written.name)?,
            about: written.about.clone(),
            build: written.build.clone(),
            take: written.take.iter().map(|path| path.get_ref().clone()).collect(),
            stand_in: written.stand_in.clone(),
        })
    }

    fn from(&self, written: &Option<String>) -> From {
        match written.as_deref() {
            None | Some("stdout") => From::Stdout,
            Some("stderr") => From::Stderr,
            Some(file) => From::File(file.to_string()),
        }
    }

    fn regex(&self, written: &Spanned<String>, groups: usize) -> Outcome<String> {
        match Regex::new(written.get_ref()) {
            Ok(regex) if regex.captures_len() == groups + 1 || groups == 0 => Ok(written.get_ref().clone()),
            Ok(_) => Err(self.at(written.span(), "the regex needs exactly one group: the number")),
            Err(e) => Err(self.at(written.span(), "the regex cannot be read").detail(e)),
        }
    }

    fn metric(&self, written: &schema::Metric, modelled: bool) -> Outcome<MetricDecl> {
        let name = written.name.get_ref();
        let here = |what: String| self.at(written.name.span(), format!("metric {name}: {what}"));
        let hdr = |percentile: &Spanned<f64>| match (0.0..=100.0).contains(percentile.get_ref()) {
            true => Ok(Reading::Hdr { percentile: *percentile.get_ref(), scale: written.scale.unwrap_or(1.0) }),
            false => Err(self.at(percentile.span(), "a percentile is from 0 to 100")),
        };
        if written.scale.is_some() && written.hdr.is_none() {
            return Err(here("scale belongs to hdr".into()));
        }
        let reading = match (&written.regex, &written.json, &written.table, &written.hdr) {
            (Some(regex), None, None, None) => {
                Some(Reading::Regex(self.regex(regex, 1)?, written.over.unwrap_or(Over::First)))
            }
            (None, Some(pointer), None, None) if pointer.get_ref().starts_with('/') => {
                Some(Reading::Json(pointer.get_ref().clone()))
            }
            (None, Some(pointer), None, None) => {
                return Err(self.at(pointer.span(), "a JSON pointer begins with / (RFC 6901)"));
            }
            (None, None, Some(table), None) => {
                Some(Reading::Table { row: table.row.clone(), column: table.column.clone() })
            }
            (None, None, None, Some(percentile)) => Some(hdr(percentile)?),
            (None, None, None, None) => None,
            (_, _, _, _) => return Err(here("exactly one of regex, json, table and hdr".into())),
        };
        match (modelled, &reading) {
            (true, Some(_)) => return Err(here("a model reports its metrics itself".into())),
            (false, None) => {
                return Err(here("a program's metric is read by one of regex, json, table and hdr".into()));
            }
            (true, None) | (false, Some(_)) => {}
        }
        if !modelled && name.contains('*') {
            return Err(here("only a model's metrics may have a * in their names".into()));
        }
        let rank = match (&written.percentile, &written.samples) {
            (None, None) => None,
            (Some(percentile), Some(samples)) => {
                let pointer = samples.get_ref().starts_with('/');
                let over = written.over.unwrap_or(Over::First);
                let reading = match pointer {
                    true => Reading::Json(samples.get_ref().clone()),
                    false => Reading::Regex(self.regex(samples, 1)?, over),
                };
                Some((*percentile.get_ref(), reading))
            }
            (Some(_), None) | (None, Some(_)) => {
                return Err(here("percentile and samples come together: which one it is, and of how many".into()));
            }
        };
        Ok(MetricDecl {
            name: name.clone(),
            unit: written.unit.clone(),
            better: written.better,
            hidden: written.hidden,
            from: self.from(&written.from),
            reading,
            rank,
        })
    }

    fn promise(&self, written: &schema::Invariant) -> Outcome<Promise> {
        let name = self.name(&written.name)?;
        let read = |text: &Option<Spanned<String>>| text.as_ref().map(|text| self.regex(text, 0)).transpose();
        let (says, never) = (read(&written.says)?, read(&written.never)?);
        match says.is_some() || never.is_some() {
            true => Ok(Promise { name, from: self.from(&written.from), says, never }),
            false => Err(self.at(written.name.span(), format!("invariant {name}: says or never gives the expression"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RIGHT: &str = "schema = 1\ntitle = \"x\"\nclocks = [\"real\"]\n[program]\nimage = \"perf\"\nargv = [\"/a\", \"{n}\"]\ndeadline_s = 1\n[[param]]\nname = \"n\"\nabout = \"\"\ndefault = 1\nmin = 0\nmax = 2\n[[metric]]\nname = \"m\"\nunit = \"s\"\nbetter = \"lower\"\nregex = '([0-9]+)'\n";

    fn refused(text: &str) -> String {
        parse("b", "b/bundle.toml", text, BTreeMap::new()).expect_err(text).message
    }

    #[test]
    fn a_right_bundle_is_taken() {
        parse("b", "b/bundle.toml", RIGHT, BTreeMap::new()).expect("right");
    }

    #[test]
    fn a_wrong_line_is_refused_with_its_number() {
        for (from, to, says) in [
            ("schema = 1", "schema = 2", "b/bundle.toml:1: schema 2"),
            ("title = \"x\"", "titel = \"x\"", "b/bundle.toml:2: unknown field `titel`"),
            ("[\"real\"]", "[]", ":3: clocks is empty"),
            ("[program]", "[model]\nname = \"m\"\n[program]", "exactly one of [model] and [program]"),
            ("\"/a\"", "\"a\"", ":6: `a`: a program is an absolute path"),
            ("\"{n}\"", "\"{m}\"", ":6: {m} is not declared"),
            ("\"{n}\"", "\"{n\"", ":6: `{` without `}`"),
            ("deadline_s = 1", "deadline_s = 0", ":7: deadline_s"),
            ("deadline_s = 1", "deadline_s = 1\ncpus = \"nod:1\"", ":8: `nod:1`"),
            ("name = \"n\"", "name = \"N\"", ":9: `N`: a name is of lower-case"),
            ("name = \"n\"", "name = \"cpus\"", ":9: `cpus` is declared twice"),
            ("default = 1", "default = 3", ":11: the default 3"),
            ("max = 2", "", ":11: n: a number needs min and max"),
            ("default = 1\nmin = 0\nmax = 2", "default = \"a\"\nchoices = [\"b\"]", ":11: the default `a`"),
            ("'([0-9]+)'", "'[0-9]+'", "exactly one group"),
            ("'([0-9]+)'", "'(['", "cannot be read"),
            ("regex = '([0-9]+)'", "", "metric m: a program's metric is read by"),
            ("regex = '([0-9]+)'", "json = \"a\"", "begins with /"),
            ("regex = '([0-9]+)'", "hdr = 101", "from 0 to 100"),
            ("regex = '([0-9]+)'", "json = \"/a\"\npercentile = 99", "percentile and samples come together"),
            ("regex = '([0-9]+)'", "json = \"/a\"\nhdr = 1", "exactly one of regex"),
            ("[[metric]]", "[derive]\nt = \"n *\"\n[[metric]]", ":15: t: a number or a name is missing"),
            ("[[metric]]", "[derive]\nt = \"k * 2\"\n[[metric]]", ":15: t: `k` is neither"),
            ("[[metric]]", "[[invariant]]\nname = \"i\"\n[[metric]]", ":15: invariant i: says or never"),
            (
                "[[metric]]",
                "[[metric]]\nname = \"m\"\nunit = \"1\"\nbetter = \"lower\"\nregex = '(a)'\n[[metric]]",
                ":20: metric m is declared twice",
            ),
            ("regex = '([0-9]+)'", "json = \"/a\"\nscale = 2.0", "scale belongs to hdr"),
            (
                "[program]\nimage = \"perf\"",
                "[[source]]\nname = \"p\"\nabout = \"\"\ntake = [\"p\"]\n[program]",
                ":5: source p: there is no image to put it into",
            ),
            ("default = 1\n", "default = 1.5\n", ":11: a whole number or a word is needed"),
            ("title = \"x\"", "title = \"x\"\nkernel = [\"EPOLL\"]", ":3: `EPOLL` is no line"),
            ("title = \"x\"", "title = \"x\"\narchitectures = [\"arm\"]", ":3: `arm` is none of"),
        ] {
            assert!(RIGHT.contains(from), "{from}");
            let said = refused(&RIGHT.replacen(from, to, 1));
            assert!(said.contains(says), "{to}: {said}");
        }
    }
}
