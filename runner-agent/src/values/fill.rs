//! Inserts sensitive values into a manifest.
use schemas::{
    manifest::Manifest,
    secret::{MAX_REFERENCES, SecretReference, Through, apply, placeholder},
};
use zeroize::Zeroizing;

use super::OpenValues;

/// Maximum number of functions of one reference.
const MAX_FUNCTIONS: usize = 16;
/// Maximum size of one inserted text in bytes.
const MAX_INSERTED: usize = 1 << 20;

/// Checks the references of a manifest: they are sorted, do not overlap, and each names a place that
/// contains `encrypted:` and the id of its value.
pub(super) fn check(manifest: &Manifest) -> Result<(), String> {
    let references = &manifest.secrets;
    if references.len() > MAX_REFERENCES {
        return Err(format!("the manifest inserts more than {MAX_REFERENCES} sensitive values"));
    }
    let mut manifest = manifest.clone();
    for (at, reference) in references.iter().enumerate() {
        let former = at.checked_sub(1).and_then(|at| references.get(at));
        let is_sorted = former.is_none_or(|former| {
            (&former.pointer, former.end) <= (&reference.pointer, reference.start)
                || former.pointer < reference.pointer
        });
        if !is_sorted {
            return Err(wrong(reference, "it overlaps another one, or is not sorted"));
        }
        if !is_permitted(&reference.pointer) {
            return Err(wrong(reference, "no sensitive value may be inserted there"));
        }
        if reference.through.len() > MAX_FUNCTIONS {
            return Err(wrong(reference, "it applies more than 16 functions"));
        }
        place(&mut manifest, reference)?;
    }
    Ok(())
}

/// Returns whether the text at this place goes only to the code of the job. Other texts name the
/// subject of the job or an address, or the runner reports them.
fn is_permitted(pointer: &str) -> bool {
    let parts: Vec<&str> = pointer.split('/').skip(1).collect();
    matches!(
        parts.as_slice(),
        ["env", _]
            | ["inputs", "vars" | "var_files" | "settings", _, ..]
            | ["inputs", "steps", _, "command" | "inline_contents"]
            | ["inputs", "steps", _, "env_vars", _]
    )
}

/// Applies the functions of a reference to its value.
fn applied(reference: &SecretReference, value: &str) -> Result<Zeroizing<String>, String> {
    let too_large = || wrong(reference, "the result is larger than 1 MiB");
    let mut text = Zeroizing::new(value.to_owned());
    for function in &reference.through {
        if let Through::Indent(spaces) = function {
            let added = (*spaces as usize).saturating_mul(text.matches('\n').count() + 1);
            if added > MAX_INSERTED {
                return Err(too_large());
            }
        }
        text = Zeroizing::new(apply(std::slice::from_ref(function), &text));
        if text.len() > MAX_INSERTED {
            return Err(too_large());
        }
    }
    Ok(text)
}

/// Inserts the values, the last one first. Returns every inserted text, for redaction.
///
/// # Errors
/// If a value is missing or a place does not exist. The manifest must not be used then.
pub(crate) fn fill(
    manifest: &mut Manifest,
    values: &OpenValues,
) -> Result<Vec<Zeroizing<String>>, String> {
    let references = std::mem::take(&mut manifest.secrets);
    let mut inserted = vec![];
    for reference in references.iter().rev() {
        let value = values.get(&reference.id);
        let value = value.ok_or_else(|| wrong(reference, "its value is missing"))?;
        let text = applied(reference, value)?;
        let (start, end) = (reference.start as usize, reference.end as usize);
        place(manifest, reference)?.replace_range(start..end, &text);
        inserted.push(text);
    }
    Ok(inserted)
}

/// Returns the string of a reference, after a check of the place in it.
fn place<'m>(
    manifest: &'m mut Manifest,
    reference: &SecretReference,
) -> Result<&'m mut String, String> {
    let pointer = reference.pointer.as_str();
    let text = match (pointer.strip_prefix("/inputs"), pointer.strip_prefix("/env/")) {
        (Some(below), _) => match manifest.inputs.pointer_mut(below) {
            Some(serde_json::Value::String(text)) => Some(text),
            Some(_) | None => None,
        },
        (None, Some(name)) => manifest.env.get_mut(&name.replace("~1", "/").replace("~0", "~")),
        (None, None) => None,
    };
    let text = text.ok_or_else(|| wrong(reference, "there is no such string"))?;
    let range = usize::try_from(reference.start).ok().zip(usize::try_from(reference.end).ok());
    let found = range.and_then(|(start, end)| text.get(start..end));
    if found != Some(placeholder(reference.id).as_str()) {
        return Err(wrong(reference, "the manifest has no placeholder of this value there"));
    }
    Ok(text)
}

fn wrong(reference: &SecretReference, why: &str) -> String {
    let SecretReference { pointer, start, id, .. } = reference;
    format!("cannot insert the sensitive value {id} at {pointer}, byte {start}: {why}")
}
