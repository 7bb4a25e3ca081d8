//! A series in order, ready for `git am`, with everything that was found on the way to it.

use super::diff::Diff;
use super::mail::encode;
use crate::fault::{Fault, Outcome};
use std::collections::BTreeSet;

/// One patch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// Its title, without brackets.
    pub title: String,
    /// Where it was read.
    pub label: String,
    /// `Name <address>`.
    pub(super) from: Option<String>,
    /// As written.
    pub(super) date: Option<String>,
    /// The commit message, without the title.
    pub(super) message: String,
    /// The diff, from its first file's line on.
    pub(crate) diff: String,
    /// Trailers that replies gave, which the message has not yet.
    pub trailers: Vec<String>,
}

impl Patch {
    /// Files that it touches, relative to the tree.
    pub fn files(&self) -> BTreeSet<String> {
        Diff::parse(&self.diff).files
    }

    /// The mail that `git am` takes.
    pub(crate) fn mail(&self) -> Vec<u8> {
        let from = self.from.as_deref().filter(|from| from.contains('<')).unwrap_or("topolab <topolab@localhost>");
        // An archive's own form of a date is nothing that git am knows.
        let date = self.date.as_deref().filter(|date| date.contains(", ")).unwrap_or("Thu, 1 Jan 1970 00:00:00 +0000");
        let message = with_trailers(&self.message, &self.trailers);
        // [PATCH] is what git am removes: a bracket of the title's own stays.
        encode(&format!(
            "From: {from}\nDate: {date}\nSubject: [PATCH] {}\nMIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n\
             Content-Transfer-Encoding: 8bit\n\n{message}---\n{}-- \ntopolab\n",
            self.title, self.diff
        ))
    }
}

/// The message with more trailers: directly behind those that it has, or behind an empty line.
fn with_trailers(message: &str, trailers: &[String]) -> String {
    let message = message.trim_end();
    let mut text = if message.is_empty() { String::new() } else { format!("{message}\n") };
    if !trailers.is_empty() {
        let last = message.lines().last().unwrap_or_default();
        if !message.is_empty() && super::thread::trailer(last).is_none() {
            text.push('\n');
        }
        trailers.iter().for_each(|trailer| text.push_str(&format!("{trailer}\n")));
    }
    text.push('\n');
    text
}

/// What was read, usable or not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Series {
    /// How tables name it: its folder's or file's name.
    pub name: String,
    /// The cover letter's title, or the only patch's.
    pub title: String,
    /// Whether there is a cover letter.
    pub cover: bool,
    /// Its version.
    pub version: u32,
    /// Every version that was found.
    pub versions: Vec<u32>,
    /// Patches that it should have: as its subjects say, or as many as there are.
    pub total: u32,
    /// Those of them that are not here.
    pub missing: Vec<u32>,
    /// Its patches, in order.
    pub patches: Vec<Patch>,
    /// The commit that it was made for.
    pub base_commit: Option<String>,
    /// b4's name of the series through its versions.
    pub change_id: Option<String>,
    /// What was undone, repaired, left out.
    pub notes: Vec<String>,
    /// What stands in the way.
    pub problems: Vec<Fault>,
}

impl Series {
    /// The series, or the first thing that stands in its way.
    pub fn usable(self) -> Outcome<Self> {
        match self.problems.first().cloned() {
            None => Ok(self),
            Some(problem) => Err(Fault { message: format!("{}: {}", self.name, problem.message), ..problem }),
        }
    }

    /// Files that the series touches, relative to the tree.
    pub fn files(&self) -> BTreeSet<String> {
        self.patches.iter().flat_map(Patch::files).collect()
    }

    /// What decides the patched tree: the diffs alone, so that a reworded message is the same kernel.
    pub fn content(&self) -> String {
        self.patches.iter().map(|patch| patch.diff.as_str()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_join_those_that_are_there() {
        let one = ["Tested-by: A <a@b>".to_string()];
        assert_eq!(with_trailers("words\n", &one), "words\n\nTested-by: A <a@b>\n\n");
        assert_eq!(
            with_trailers("words\n\nSigned-off-by: B <b@b>\n", &one),
            "words\n\nSigned-off-by: B <b@b>\nTested-by: A <a@b>\n\n"
        );
        assert_eq!(with_trailers("", &[]), "\n");
    }
}
