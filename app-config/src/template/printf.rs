//! `printf`, for the verbs that make sense here: `%s %v %q %d %t %f %e %g %x %X %o %b %T %%`.
//! A verb that does not fit its value prints what Go prints, `%!d(string=hi)`; it is no error.
use super::{
    format::{decimal, float, plain, scientific, shortest, special},
    value::Value,
};

/// Wider or more precise than this is cut: nothing real asks for it.
const WIDEST: usize = 1_000;

#[derive(Default)]
struct Form {
    minus: bool,
    plus: bool,
    space: bool,
    zero: bool,
    sharp: bool,
    width: usize,
    precision: Option<usize>,
}

pub fn printf(form: &str, arguments: &[Value]) -> String {
    let mut out = String::new();
    let mut rest = form;
    let mut next = 0;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let flags = flags(&mut rest);
        let Some(verb) = rest.chars().next() else {
            out.push_str("%!(NOVERB)");
            break;
        };
        rest = &rest[verb.len_utf8()..];
        if verb == '%' {
            out.push('%');
            continue;
        }
        match arguments.get(next) {
            Some(value) => {
                out.push_str(&one(value, verb, &flags));
                next += 1;
            }
            None => out.push_str(&format!("%!{verb}(MISSING)")),
        }
    }
    out.push_str(rest.strip_prefix('%').unwrap_or(rest));
    if let Some(extra) = arguments.get(next..).filter(|extra| !extra.is_empty()) {
        let named: Vec<String> = extra.iter().map(typed).collect();
        out.push_str(&format!("%!(EXTRA {})", named.join(", ")));
    }
    out
}

fn flags(rest: &mut &str) -> Form {
    let mut form = Form::default();
    while let Some(flag) = rest.chars().next() {
        match flag {
            '-' => form.minus = true,
            '+' => form.plus = true,
            ' ' => form.space = true,
            '0' => form.zero = true,
            '#' => form.sharp = true,
            _ => break,
        }
        *rest = &rest[1..];
    }
    form.width = digits(rest).unwrap_or_default();
    if let Some(after) = rest.strip_prefix('.') {
        *rest = after;
        form.precision = Some(digits(rest).unwrap_or_default());
    }
    form
}

fn digits(rest: &mut &str) -> Option<usize> {
    let length = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, after) = rest.split_at(length);
    *rest = after;
    (length > 0).then(|| number.parse::<usize>().unwrap_or(WIDEST).min(WIDEST))
}

/// One value by one verb. Lists and maps apply the verb to what they hold.
fn one(value: &Value, verb: char, form: &Form) -> String {
    match (value, verb) {
        (_, 'T') => pad(value.type_name().to_string(), form, false),
        (Value::List(items), _) => {
            let items: Vec<String> = items.iter().map(|item| one(item, verb, form)).collect();
            format!("[{}]", items.join(" "))
        }
        (Value::Map(entries), _) => {
            let entries = entries.borrow();
            let pairs = entries.iter().map(|(key, item)| {
                format!("{}:{}", one(&Value::text(key), verb, form), one(item, verb, form))
            });
            format!("map[{}]", pairs.collect::<Vec<_>>().join(" "))
        }
        (Value::Nil, 'v') => pad("<nil>".into(), form, false),
        (Value::Text(text), 's' | 'v') => {
            let cut = form.precision.map(|most| text.chars().take(most).collect::<String>());
            pad(cut.unwrap_or_else(|| text.to_string()), form, false)
        }
        (Value::Text(text), 'q') => pad(quote(text), form, false),
        (Value::Text(text), 'x' | 'X') => {
            let hex = hex::encode(text.as_bytes());
            pad(if verb == 'X' { hex.to_uppercase() } else { hex }, form, false)
        }
        (Value::Bool(flag), 't' | 'v') => pad(flag.to_string(), form, false),
        (Value::Int(number), 'd' | 'v') => {
            pad(sign(*number >= 0, number.to_string(), form), form, true)
        }
        (Value::Int(number), 'x') => pad(radix(*number, |n| format!("{n:x}")), form, true),
        (Value::Int(number), 'X') => pad(radix(*number, |n| format!("{n:X}")), form, true),
        (Value::Int(number), 'o') => pad(radix(*number, |n| format!("{n:o}")), form, true),
        (Value::Int(number), 'b') => pad(radix(*number, |n| format!("{n:b}")), form, true),
        (Value::Int(number), 'c') => {
            let c = u32::try_from(*number).ok().and_then(char::from_u32).unwrap_or('\u{fffd}');
            pad(c.to_string(), form, false)
        }
        (Value::Float(number), 'v' | 'g' | 'G' | 'f' | 'F' | 'e' | 'E') => {
            pad(sign(*number >= 0.0, real(*number, verb, form.precision), form), form, true)
        }
        (Value::Nil, _) => format!("%!{verb}(<nil>)"),
        (Value::Text(_) | Value::Bool(_) | Value::Int(_) | Value::Float(_), _) => {
            format!("%!{verb}({})", typed(value))
        }
    }
}

fn real(number: f64, verb: char, precision: Option<usize>) -> String {
    if !number.is_finite() {
        return special(number);
    }
    match (verb, precision) {
        ('f' | 'F', precision) => format!("{number:.*}", precision.unwrap_or(6)),
        ('e' | 'E', precision) => {
            let text = format!("{:.*e}", precision.unwrap_or(6), number.abs());
            let (mantissa, exponent) = text.split_once('e').unwrap_or((text.as_str(), "0"));
            let digits = mantissa.replace('.', "");
            scientific(number, &digits, exponent.parse().unwrap_or_default(), verb)
        }
        (_, None) => float(number),
        (_, Some(precision)) => general(number, precision.max(1)),
    }
}

/// `%.Ng`: N significant digits, without the zeros at their end.
fn general(number: f64, precision: usize) -> String {
    if number == 0.0 {
        return special(number);
    }
    let rounded: f64 = format!("{:.*e}", precision - 1, number).parse().unwrap_or(number);
    let (digits, exponent) = shortest(rounded);
    let most = if precision > digits.len() && digits.len() as i32 > exponent {
        digits.len() as i32
    } else {
        precision as i32
    };
    if exponent < -4 || exponent >= most {
        scientific(number, &digits, exponent, 'e')
    } else {
        decimal(number, &digits, exponent)
    }
}

fn radix(number: i64, digits: impl Fn(u64) -> String) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", digits(number.unsigned_abs()))
}

fn sign(positive: bool, text: String, form: &Form) -> String {
    match (positive, form.plus, form.space) {
        (true, true, _) => format!("+{text}"),
        (true, false, true) => format!(" {text}"),
        (_, _, _) => text,
    }
}

fn pad(text: String, form: &Form, number: bool) -> String {
    let missing = form.width.saturating_sub(text.chars().count());
    if missing == 0 {
        return text;
    }
    if form.minus {
        return format!("{text}{}", " ".repeat(missing));
    }
    if form.zero && number {
        let digits = text.trim_start_matches(['-', '+', ' ']);
        let sign = &text[..text.len() - digits.len()];
        return format!("{sign}{}{digits}", "0".repeat(missing));
    }
    format!("{}{text}", if form.zero { "0" } else { " " }.repeat(missing))
}

fn typed(value: &Value) -> String {
    if matches!(value, Value::Nil) {
        return "<nil>".to_string();
    }
    let mut text = format!("{}=", value.type_name());
    plain(value, &mut text, usize::MAX);
    text
}

/// A string as Go writes it in source.
fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            c if c.is_control() && u32::from(c) < 0x80 => {
                out.push_str(&format!("\\x{:02x}", u32::from(c)))
            }
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_print_what_go_prints() {
        let cases: [(&str, Vec<Value>, &str); 14] = [
            ("%s-%v", vec![Value::text("a"), Value::Int(1)], "a-1"),
            ("%d%%", vec![Value::Int(5)], "5%"),
            (
                "%05d|%-4s|%4s",
                vec![Value::Int(-42), Value::text("a"), Value::text("b")],
                "-0042|a   |   b",
            ),
            ("%q", vec![Value::text("a\"\n")], r#""a\"\n""#),
            (
                "%.2f %g %e",
                vec![Value::Float(1.5), Value::Float(1e7), Value::Float(1.5)],
                "1.50 1e+07 1.500000e+00",
            ),
            ("%d", vec![Value::text("hi")], "%!d(string=hi)"),
            ("%s", vec![], "%!s(MISSING)"),
            ("%s", vec![Value::Nil], "%!s(<nil>)"),
            ("a", vec![Value::Int(1)], "a%!(EXTRA int=1)"),
            ("%v", vec![Value::list(vec![Value::text("a"), Value::Nil])], "[a <nil>]"),
            ("%x %X", vec![Value::text("hi"), Value::Int(255)], "6869 FF"),
            ("%t %T", vec![Value::Bool(true), Value::Float(1.0)], "true float64"),
            ("%.3g", vec![Value::Float(1234.5)], "1.23e+03"),
            ("%", vec![], "%!(NOVERB)"),
        ];
        for (form, arguments, expected) in cases {
            assert_eq!(printf(form, &arguments), expected, "{form}");
        }
    }
}
