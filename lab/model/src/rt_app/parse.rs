//! A profile: `global`, `resources` and `tasks`. Everything in it is understood, or ignored for a reason given here, or an
//! error by name.

use super::fields::{Fields, bad, text};
use super::json::Json;
use super::profile::{Objects, Policy, Profile};
use super::tasks;
use crate::ModelError;

/// Options that are taken without effect, and why that is right.
const IGNORED: [(&str, &str); 11] = [
    ("calibration", "time is burned, not loops"),
    ("logdir", "numbers are in the record"),
    ("log_basename", "numbers are in the record"),
    ("log_size", "numbers are in the record"),
    ("ftrace", "the kernel's doings are counted by the busy module"),
    ("gnuplot", "the lab draws its own"),
    ("lock_pages", "guests do not swap"),
    ("frag", "an option of old versions that no version looks at any more"),
    ("cumulative_slack", "the slack of each timer is a sample of its own"),
    ("io_device", "only iorun uses it, which is refused"),
    ("mem_buffer_size", "only mem and iorun use it, which are refused"),
];

/// Kinds of resources that rt-app knows by name (src/rt-app_utils.c, `string_to_resource`). Events make what they need, so
/// that nothing follows from a declaration.
const RESOURCES: [&str; 8] = ["mutex", "signal", "wait", "broadcast", "sync", "sleep", "run", "timer"];

/// Reads a profile.
pub(super) fn parse(profile: &str) -> Result<Profile, ModelError> {
    let json = Json::read(profile).map_err(|why| bad("profile", why))?;
    if !matches!(json, Json::Object(_)) {
        return Err(bad("profile", format!("is {}; it must be an object", json.kind())));
    }
    let mut fields = Fields::new("", &json)?;
    let (seconds, policy) = match fields.take("global")? {
        Some(json) => global(json)?,
        None => (None, Policy::Other),
    };
    if let Some(json) = fields.take("resources")? {
        resources(json)?;
    }
    let Some(json) = fields.take("tasks")? else { return Err(bad("tasks", "is missing")) };
    fields.finish(|_| None)?;
    let mut objects = Objects::default();
    let named = Fields::new("tasks", json)?.take_named()?;
    let one = |(name, json): (&str, &Json)| tasks::task(&format!("tasks.{name}"), name, json, policy, &mut objects);
    let tasks = named.into_iter().map(one).collect::<Result<Vec<_>, _>>()?;
    match tasks.iter().map(|task| task.instances).sum::<usize>() {
        0 => Err(bad("tasks", "has no task with an instance")),
        threads if threads > tasks::MOST_THREADS as usize => {
            Err(bad("tasks", format!("has {threads} instances; there may be {}", tasks::MOST_THREADS)))
        }
        _ => Ok(Profile { seconds, tasks, objects }),
    }
}

/// How long, and the default policy.
fn global(json: &Json) -> Result<(Option<u64>, Policy), ModelError> {
    let mut fields = Fields::new("global", json)?;
    let duration = fields.take_int("duration", -1..=i64::from(i32::MAX))?.unwrap_or(-1);
    let named = fields.take_text("default_policy")?;
    let policy = named.map_or(Ok(Policy::Other), |name| tasks::policy("global.default_policy", name))?;
    if fields.take_bool("pi_enabled")? == Some(true) {
        return Err(bad("global.pi_enabled", "mutexes that inherit priorities are not modelled"));
    }
    for (name, _) in IGNORED {
        fields.take(name)?;
    }
    fields.finish(|_| None)?;
    // As rt-app has it, 0 is no duration.
    Ok((u64::try_from(duration).ok().filter(|seconds| *seconds > 0), policy))
}

fn resources(json: &Json) -> Result<(), ModelError> {
    for (name, json) in Fields::new("resources", json)?.take_named()? {
        let mut fields = Fields::new(&format!("resources.{name}"), json)?;
        if let Some(json) = fields.take("type")? {
            let path = fields.path("type");
            let kind = text(&path, json)?;
            if !RESOURCES.contains(&kind) {
                return Err(bad(path, format!("`{kind}` is no type; there is: {}", RESOURCES.join(" "))));
            }
        }
        fields.finish(|_| None)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
