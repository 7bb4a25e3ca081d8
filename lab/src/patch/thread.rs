//! From mails in any order to one series: the newest version, its patches by number, what is missing, and the trailers that
//! replies gave. As b4 does it (b4, `b4/__init__.py`, LoreMailbox), but where two answers are possible it says so instead of choosing.

use super::damage::{self, Damage};
use super::diff::Diff;
use super::mail::Mail;
use super::read::Intake;
use super::series::{Patch, Series};
use super::subject::{Subject, without_reply};
use crate::fault::Fault;
use std::collections::{BTreeMap, BTreeSet};

/// A mail with what its subject and its diff say.
struct Post {
    mail: Mail,
    subject: Option<Subject>,
    diff: bool,
    reply: bool,
}

/// `Reviewed-by: Name <address>`; the kinds that say something of a patch (Documentation/process/submitting-patches.rst).
pub(super) fn trailer(line: &str) -> Option<&str> {
    let (name, value) = line.split_once(": ")?;
    let words = name.ends_with("-by") || ["Fixes", "Closes", "Link", "Cc", "Reported-and-tested-by"].contains(&name);
    let plain = name.chars().all(|c| c.is_ascii_alphabetic() || c == '-');
    (words && plain && !value.trim().is_empty()).then_some(line)
}

/// What a reply gives: only by-lines with an address, which nobody else's quoted text has at the start of a line.
fn given(line: &str) -> Option<String> {
    let line = line.trim_end();
    let (name, value) = trailer(line)?.split_once(": ")?;
    let fits = name.ends_with("-by") && !["Signed-off-by", "Nacked-by"].contains(&name) && value.contains('@');
    fits.then(|| line.to_string())
}

/// What holds the mails, which decides what their order means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// A mailbox: any order, and other mails between the patches.
    Mailbox,
    /// A folder's files in order of name: every one that has a patch is meant.
    Files,
    /// A list that says the order itself.
    List,
}

/// Puts a series together.
pub(super) fn assemble(name: &str, mails: Vec<Mail>, held: Held, intake: Intake) -> Series {
    let mut ids = BTreeSet::new();
    let posts: Vec<Post> = mails
        .into_iter()
        // A mailbox of several lists has a mail several times.
        .filter(|mail| held != Held::Mailbox || mail.id.as_ref().is_none_or(|id| ids.insert(id.clone())))
        .map(|mail| Post {
            subject: Subject::parse(&mail.subject),
            diff: Diff::parse(&mail.body).begins.is_some(),
            reply: without_reply(&mail.subject).0,
            mail,
        })
        .collect();
    let mut series = Series { name: name.to_string(), version: 1, ..Series::default() };
    if held == Held::List {
        let all: Vec<&Post> = posts.iter().filter(|post| post.diff).collect();
        series.total = all.len() as u32;
        series.versions.push(1);
        return finished(series, &all, &[], &posts, intake);
    }
    // Where mails say that they are patches, what else has a diff is a commit's notice, a robot's answer, a bug report.
    let said = posts.iter().any(|post| post.diff && !post.reply && post.subject.is_some());
    let is_cover = |post: &&Post| !post.reply && post.subject.as_ref().is_some_and(Subject::is_cover);
    let is_patch = |post: &&Post| {
        post.diff && !post.reply && !is_cover(post) && (post.subject.is_some() || !said || held == Held::Files)
    };
    let numbered: Vec<&Post> = posts.iter().filter(is_patch).collect();
    let version = |post: &Post| post.subject.as_ref().map_or(1, |s| s.version);
    let known: BTreeSet<u32> = numbered.iter().copied().chain(posts.iter().filter(is_cover)).map(version).collect();
    series.versions = known.iter().copied().collect();
    let there = || known.iter().map(|v| format!("v{v}")).collect::<Vec<_>>().join(", ");
    let Some(wanted) = intake.version.or_else(|| known.last().copied()) else {
        return only_replies(series, &posts, intake);
    };
    series.version = wanted;
    if !known.contains(&wanted) {
        series
            .problems
            .push(Fault::input(format!("there is no version {wanted}")).help(format!("there is {}", there())));
        return series;
    }
    if held == Held::Files && known.len() > 1 && intake.version.is_none() {
        series.problems.push(
            Fault::input(format!("its files are of several versions: {}", there()))
                .help("--patch-version N takes those of one; a quilt `series` file says what belongs together"),
        );
        return series;
    }
    let covers: Vec<&Post> = posts.iter().filter(is_cover).filter(|post| version(post) == wanted).collect();
    let of_it: Vec<&Post> = numbered.into_iter().filter(|post| version(post) == wanted).collect();
    if let Some(cover) = covers.last() {
        series.cover = true;
        series.title = cover.subject.as_ref().map(|s| s.title.clone()).unwrap_or_default();
    }
    let ordered = order(&mut series, of_it, &covers, held, intake);
    finished(series, &ordered, &covers, &posts, intake)
}

/// Takes the patches in, with what the mails around them say.
fn finished(mut series: Series, ordered: &[&Post], covers: &[&Post], posts: &[Post], intake: Intake) -> Series {
    let ids: BTreeMap<&str, Option<usize>> = ordered
        .iter()
        .enumerate()
        .filter_map(|(n, post)| Some((post.mail.id.as_deref()?, Some(n))))
        .chain(covers.iter().filter_map(|post| Some((post.mail.id.as_deref()?, None))))
        .collect();
    facts(&mut series, covers.iter().chain(ordered).copied());
    for post in ordered {
        take(&mut series, post, intake);
    }
    trailers(&mut series, posts, &ids);
    if series.title.is_empty() {
        series.title = series.patches.first().map(|patch| patch.title.clone()).unwrap_or_default();
    }
    series
}

/// The patches of the wanted version by number, and what is missing of them.
fn order<'a>(series: &mut Series, posts: Vec<&'a Post>, covers: &[&Post], held: Held, intake: Intake) -> Vec<&'a Post> {
    let subject = |post: &Post| post.subject.clone();
    let total = |post: &Post| post.subject.as_ref().map_or(1, |s| s.total);
    let totals: BTreeSet<u32> = posts
        .iter()
        .filter(|p| subject(p).is_some_and(|s| s.number.is_some()))
        .map(|p| total(p))
        .chain(covers.iter().map(|p| total(p)))
        .collect();
    let covered: BTreeSet<&str> = covers.iter().filter_map(|p| p.subject.as_ref()).map(|s| s.title.as_str()).collect();
    if totals.len() > 1 || covered.len() > 1 {
        let sizes: Vec<String> = totals.iter().map(u32::to_string).collect();
        series.problems.push(
            Fault::input("there is more than one series in it")
                .detail(format!(
                    "series of {} patches; cover letters: {}",
                    sizes.join(" and "),
                    covered.into_iter().collect::<Vec<_>>().join(", ")
                ))
                .help("give each its own file"),
        );
        return Vec::new();
    }
    let Some(total) = totals.first().copied() else {
        return unnumbered(series, posts, held);
    };
    series.total = total;
    let mut by_number: BTreeMap<u32, &Post> = BTreeMap::new();
    for post in posts {
        let number = subject(post).and_then(|s| s.number);
        let Some(number) = number.filter(|n| (1..=total).contains(n)) else {
            let left = format!("`{}` ({}) is not one of the {total}", post.mail.subject, post.mail.label);
            match held {
                Held::Mailbox => series.notes.push(format!("{left} and is left out")),
                Held::Files | Held::List => series.problems.push(
                    Fault::input(left)
                        .help("a quilt `series` file says which patches belong together, and in which order"),
                ),
            }
            continue;
        };
        // Sent again: the later one counts.
        match by_number.get(&number) {
            Some(known) if subject(known).map(|s| s.title) != subject(post).map(|s| s.title) => {
                series.problems.push(Fault::input(format!("there are two different patches {number}/{total}")).detail(
                    format!("{}: {}\n{}: {}", known.mail.label, known.mail.subject, post.mail.label, post.mail.subject),
                ));
            }
            Some(known) if known.mail.time > post.mail.time => {}
            Some(_) | None => {
                by_number.insert(number, post);
            }
        }
    }
    series.missing = (1..=total).filter(|n| !by_number.contains_key(n)).collect();
    if intake.partial && !by_number.is_empty() && !series.missing.is_empty() {
        series.notes.push(format!("only {} of {total} patches, as asked", by_number.len()));
    } else if !series.missing.is_empty() {
        let missing: Vec<String> = series.missing.iter().map(|n| format!("{n}/{total}")).collect();
        let id = covers.iter().chain(by_number.values()).find_map(|post| post.mail.id.clone());
        let what = match by_number.is_empty() {
            true => format!("this is the cover letter of a series of {total}, without its patches"),
            false => format!("the series is incomplete: {} missing", missing.join(", ")),
        };
        let whole = "give the whole thread as an mbox, or the folder that `git format-patch` or b4 made, or take what is here with --partial";
        series.problems.push(Fault::input(what).detail(format!("missing: {}", missing.join(", "))).help(match id {
            Some(id) => format!("{whole}; with b4: `b4 am {id}`"),
            None => whole.into(),
        }));
    }
    by_number.into_values().collect()
}

/// Patches that nobody numbers: files in order of name, or one patch, perhaps sent again.
fn unnumbered<'a>(series: &mut Series, posts: Vec<&'a Post>, held: Held) -> Vec<&'a Post> {
    let titles: BTreeSet<&str> = posts.iter().map(|post| post.mail.subject.as_str()).collect();
    let posts = match held {
        Held::Files | Held::List => posts,
        Held::Mailbox if titles.len() <= 1 => posts.into_iter().max_by_key(|post| post.mail.time).into_iter().collect(),
        Held::Mailbox => {
            series.problems.push(
                Fault::input("there are several patches in it, and no number says that they are a series")
                    .detail(titles.into_iter().collect::<Vec<_>>().join("\n"))
                    .help("give each its own file; a folder's files are taken in order of name"),
            );
            Vec::new()
        }
    };
    series.total = posts.len() as u32;
    posts
}

/// base-commit (git format-patch --base) and change-id (b4).
fn facts<'a>(series: &mut Series, posts: impl Iterator<Item = &'a Post>) {
    for post in posts {
        let value =
            |name: &str| post.mail.body.lines().find_map(|line| line.strip_prefix(name)).map(|v| v.trim().to_string());
        let is_hash = |text: &String| text.len() >= 12 && text.chars().all(|c| c.is_ascii_hexdigit());
        series.base_commit = series.base_commit.take().or_else(|| value("base-commit: ").filter(is_hash));
        series.change_id = series.change_id.take().or_else(|| value("change-id: "));
    }
}

/// Takes one mail's patch into the series.
fn take(series: &mut Series, post: &Post, intake: Intake) {
    let label = &post.mail.label;
    let several = series.total > 1;
    let say = |text: &str| if several { format!("{label}: {text}") } else { text.to_string() };
    series.notes.extend(post.mail.undone.iter().map(|note| say(note)));
    let mut body = post.mail.body.clone();
    // As git and patch(1) strip one part of every path, those without one get it.
    if Diff::parse(&body).bare_paths {
        body = with_prefixes(&body);
        series.notes.push(say("its paths had no a/ and b/ in front, and have them now"));
    }
    let damages = damage::examine(&body);
    if !damages.is_empty() {
        match (intake.repair, damage::repair(&body)) {
            (true, Ok((repaired, changed))) => {
                series.notes.extend(changed.iter().map(|note| say(&format!("repaired: {note}"))));
                body = repaired;
            }
            (true, Err(left)) => {
                series.problems.push(mangled(
                    &post.mail,
                    &left,
                    "this cannot be undone without guessing; get the mail itself, for example with `b4 am`",
                ));
            }
            (false, Ok(_)) => {
                series.problems.push(mangled(&post.mail, &damages, "--repair undoes this, and says what it changed"));
            }
            (false, Err(_)) => {
                series.problems.push(mangled(
                    &post.mail,
                    &damages,
                    "not all of this can be undone without guessing; get the mail itself, for example with `b4 am`",
                ));
            }
        }
    }
    let diff = Diff::parse(&body);
    if let Some((file, why)) = diff.hostile() {
        series.problems.push(Fault::input(format!("{label}: `{file}` {why}")).help("nothing was applied"));
    }
    if diff.unusable {
        series.problems.push(
            Fault::input(format!(
                "{label}: it says of a binary file only that it differs, or is a merge's combined diff"
            ))
            .help("git diff --binary, or the diff against one parent, can be applied"),
        );
    }
    let lines: Vec<&str> = body.lines().collect();
    let begins = diff.begins.unwrap_or(lines.len());
    let head = &lines[..begins];
    let title = match &post.subject {
        Some(subject) => subject.title.clone(),
        None if !post.mail.subject.is_empty() => post.mail.subject.clone(),
        None => label.clone(),
    };
    if let Some(problem) = short_of_its_stat(label, head, &diff, &lines) {
        series.problems.push(problem);
    }
    let message = head.iter().take_while(|line| **line != "---");
    series.patches.push(Patch {
        title,
        label: label.clone(),
        from: post.mail.from.clone(),
        date: post.mail.date.clone(),
        message: message.map(|line| format!("{line}\n")).collect(),
        diff: lines[begins..diff.ends.max(begins)].iter().map(|line| format!("{line}\n")).collect(),
        trailers: Vec::new(),
    });
}

fn mangled(mail: &Mail, damages: &[Damage], help: &str) -> Fault {
    let lines: Vec<String> = damages.iter().map(|damage| damage.shown(mail.before)).collect();
    Fault::input(format!("{}: the patch is mangled", mail.label)).detail(lines.join("\n")).help(help)
}

/// Whether the diffstat in front of a diff promises more than follows: a reviewer who quotes cuts whole files and hunks, which
/// leaves the rest sound.
fn short_of_its_stat(label: &str, head: &[&str], diff: &Diff, lines: &[&str]) -> Option<Fault> {
    let stat = head
        .iter()
        .rev()
        .find(|line| line.contains(" changed") && line.trim_start().starts_with(|c: char| c.is_ascii_digit()))?;
    let number = |word: &str| -> Option<usize> {
        stat.split(',').find(|part| part.contains(word))?.split_whitespace().next()?.parse().ok()
    };
    if diff.binary {
        return None;
    }
    let body = || diff.hunks.iter().flat_map(|hunk| lines[hunk.body.clone()].iter());
    let count = |sign: char| body().filter(|line| line.starts_with(sign)).count();
    let promised = (number("file")?, number("insertion").unwrap_or(0), number("deletion").unwrap_or(0));
    let found = (diff.files.len(), count('+'), count('-'));
    let less = found.0 < promised.0 || found.1 < promised.1 || found.2 < promised.2;
    less.then(|| {
        Fault::input(format!("{label}: some of the diff is missing"))
            .detail(format!(
                "its summary says {} files, {} insertions, {} deletions; {}, {} and {} are here",
                promised.0, promised.1, promised.2, found.0, found.1, found.2
            ))
            .help("get the whole mail, for example with `b4 am`")
    })
}

/// A text whose paths have the prefixes that git gives them.
fn with_prefixes(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut out = String::new();
    for (n, line) in lines.iter().enumerate() {
        let beside =
            |at: Option<usize>, word: &str| at.and_then(|at| lines.get(at)).is_some_and(|line| line.starts_with(word));
        let header = beside(n.checked_sub(1), "--- ") && beside(Some(n + 1), "@@ -");
        let prefixed = match line.split_once(' ') {
            Some(("diff", both)) if both.starts_with("--git ") => {
                both["--git ".len()..].split_once(' ').map(|(old, new)| format!("diff --git a/{old} b/{new}"))
            }
            Some(("---", name)) if beside(Some(n + 1), "+++ ") && beside(Some(n + 2), "@@ -") => {
                Some(format!("--- a/{name}"))
            }
            Some(("+++", name)) if header => Some(format!("+++ b/{name}")),
            _ => None,
        };
        let kept = prefixed.filter(|_| !line.contains("/dev/null")).unwrap_or_else(|| line.to_string());
        out.push_str(&kept);
        out.push('\n');
    }
    out
}

/// The trailers in a reply's own words, before its signature and before an original that is quoted without marks. A long one may go
/// on in the next line.
fn said_in(body: &str) -> Vec<String> {
    let end = |line: &&str| *line != "-- " && !line.starts_with("-----Original Message");
    let lines: Vec<&str> = body.lines().take_while(end).collect();
    let joined = |n: usize| match lines.get(n + 1) {
        Some(next) if !lines[n].contains('@') && next.starts_with([' ', '\t']) => {
            format!("{} {}", lines[n].trim_end(), next.trim())
        }
        Some(_) | None => lines[n].to_string(),
    };
    (0..lines.len()).filter_map(|n| given(&joined(n))).collect()
}

/// What replies say of the patches that they answer, of all of them where they answer the cover letter.
fn trailers(series: &mut Series, posts: &[Post], ids: &BTreeMap<&str, Option<usize>>) {
    for post in posts.iter().filter(|post| post.reply && !post.diff) {
        let said = said_in(&post.mail.body);
        // An answer to another version, which a shared cover letter would let through.
        let other = post.subject.as_ref().is_some_and(|s| s.version != series.version);
        if said.is_empty() || other {
            continue;
        }
        let answered = post.mail.answers.iter().rev().find_map(|id| ids.get(id.as_str()).copied());
        let by_title = || {
            let subject = post.subject.as_ref()?;
            series.patches.iter().position(|patch| patch.title == subject.title).map(Some)
        };
        let Some(place) = answered.or_else(by_title) else { continue };
        for (n, patch) in series.patches.iter_mut().enumerate() {
            let concerned = place.is_none_or(|place| place == n);
            for line in &said {
                let known = patch.trailers.contains(line) || patch.message.lines().any(|own| own == line);
                if concerned && !known {
                    patch.trailers.push(line.clone());
                }
            }
        }
    }
}

/// No mail is a patch of its own: one that quotes a patch may be taken, if the user says so.
fn only_replies(mut series: Series, posts: &[Post], intake: Intake) -> Series {
    let quoting = posts.iter().find_map(|post| Some((post, unquoted(&post.mail)?)));
    series.total = 1;
    match (quoting, intake.unquote) {
        (Some((post, mail)), true) => {
            let subject = Subject::parse(&mail.subject).map(|s| Subject { reply: false, ..s });
            series.version = subject.as_ref().map_or(1, |s| s.version);
            if let Some((number, total)) = subject.as_ref().and_then(|s| Some((s.number?, s.total)))
                && total > 1
                && !intake.partial
            {
                series.total = total;
                series.missing = (1..=total).filter(|n| *n != number).collect();
                series.problems.push(
                    Fault::input(format!("this is only patch {number} of {total}"))
                        .help("give the whole thread, or take this one with --partial"),
                );
            }
            series.notes.push(format!("taken from the quotation in {}", post.mail.label));
            let fresh = Post { subject, diff: true, reply: false, mail };
            facts(&mut series, std::iter::once(&fresh));
            take(&mut series, &fresh, intake);
            if let Some(patch) = series.patches.first() {
                series.title.clone_from(&patch.title);
            }
        }
        (Some((post, _)), false) => {
            series.title = post.subject.as_ref().map(|s| s.title.clone()).unwrap_or_default();
            series.problems.push(
                Fault::input(format!("{}: the patch is only quoted in a reply", post.mail.label))
                    .help("--unquote takes it out of the quotation"),
            );
        }
        (None, _) if posts.iter().any(|post| post.diff) => {
            let one = posts.iter().find(|post| post.diff).map(|post| post.mail.label.clone()).unwrap_or_default();
            series.problems.push(
                Fault::input(format!("{one} has a diff of its own, but is a reply and no patch"))
                    .help("save the diff as a file of its own if it is what you want"),
            );
        }
        (None, _) => {
            let first = posts.first().map(|post| post.mail.body.lines().take(5).collect::<Vec<_>>().join("\n"));
            series.problems.push(
                Fault::input("there is no patch in it")
                    .detail(first.unwrap_or_default().chars().take(400).collect::<String>())
                    .help("a patch has `--- a/FILE` and `+++ b/FILE` lines, as `git format-patch` writes them"),
            );
        }
    }
    series
}

/// The depth of a line's quotation and what is behind it.
fn quotation(line: &str) -> (usize, &str) {
    let (mut depth, mut rest) = (0, line);
    while let Some(inner) = rest.strip_prefix('>').or_else(|| rest.strip_prefix(" >").filter(|_| depth > 0)) {
        depth += 1;
        rest = inner;
    }
    (depth, rest.strip_prefix(' ').filter(|_| depth > 0).unwrap_or(rest))
}

/// The mail that another one quotes.
fn unquoted(mail: &Mail) -> Option<Mail> {
    let is_diff = |text: &str| text.starts_with("diff --git ") || text.starts_with("--- a/");
    let depth =
        mail.body.lines().map(quotation).find(|(depth, text)| *depth > 0 && is_diff(text)).map(|(depth, _)| depth)?;
    let own: Vec<&str> = mail.body.lines().map(quotation).filter(|(d, _)| *d == depth).map(|(_, text)| text).collect();
    let body: String = own.iter().map(|line| format!("{line}\n")).collect();
    let author = own.iter().find_map(|line| line.strip_prefix("Signed-off-by: ")).map(str::to_string);
    Some(Mail {
        label: mail.label.clone(),
        from: author,
        subject: mail.subject.clone(),
        body,
        undone: mail.undone.clone(),
        ..Mail::default()
    })
}

#[cfg(test)]
mod tests;
