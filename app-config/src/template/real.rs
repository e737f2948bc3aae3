//! Float verbs of `printf`, without the sign, which the caller adds.
use super::format::{decimal, float, scientific, special};

/// Upper bound for the digits after the point of a float. Further digits are zeros, which are
/// appended separately, because `format!` panics on a precision above 65,535.
const MAX_DIGITS: usize = 1100;

/// Precision for `format!`, and the zeros to append.
fn split(precision: usize) -> (usize, String) {
    let digits = precision.min(MAX_DIGITS);
    (digits, "0".repeat(precision - digits))
}

pub fn written(number: f64, verb: char, precision: Option<usize>) -> String {
    if !number.is_finite() {
        return special(number).trim_start_matches('+').to_string();
    }
    match (verb, precision) {
        ('f', Some(precision)) => {
            let (digits, zeros) = split(precision);
            format!("{number:.digits$}{zeros}")
        }
        ('e' | 'E', Some(precision)) => {
            let (digits, zeros) = split(precision);
            let text = format!("{number:.digits$e}");
            let (mantissa, exponent) = text.split_once('e').unwrap_or((text.as_str(), "0"));
            let digits = mantissa.replace('.', "") + &zeros;
            scientific(number, &digits, exponent.parse().unwrap_or_default(), verb)
        }
        ('b', _) => powers_of_two(number),
        ('x' | 'X', precision) => hexadecimal(number, precision, verb == 'X'),
        ('G', None) => float(number).replace('e', "E"),
        (_, None) => float(number),
        (_, Some(precision)) => general(number, precision.max(1), verb),
    }
}

/// `%.Ng`: N significant digits, without trailing zeros.
fn general(number: f64, precision: usize, verb: char) -> String {
    if number == 0.0 {
        return special(number);
    }
    // Rounded digits stay text. Parsing them as a float could change them.
    let text = format!("{number:.*e}", (precision - 1).min(MAX_DIGITS));
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text.as_str(), "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let mantissa = mantissa.replace('.', "");
    let digits = mantissa.trim_end_matches('0');
    let whole = exponent + 1;
    let most = if precision > digits.len() && digits.len() as i32 >= whole {
        digits.len() as i32
    } else {
        precision as i32
    };
    if exponent < -4 || exponent >= most {
        scientific(number, digits, exponent, if verb == 'G' { 'E' } else { 'e' })
    } else {
        decimal(number, digits, exponent)
    }
}

fn parts(number: f64) -> (u64, i64) {
    let bits = number.to_bits();
    let (fraction, exponent) = (bits & ((1 << 52) - 1), (bits >> 52) & 0x7ff);
    match exponent {
        0 => (fraction, -1074),
        exponent => (fraction | 1 << 52, exponent as i64 - 1075),
    }
}

fn powers_of_two(number: f64) -> String {
    let (mantissa, exponent) = parts(number);
    format!("{mantissa}p{exponent:+}")
}

fn hexadecimal(number: f64, precision: Option<usize>, upper: bool) -> String {
    let (mut mantissa, mut exponent) = parts(number);
    if mantissa == 0 {
        exponent = 0;
    } else {
        // One digit before the point and fifteen after it.
        let shift = mantissa.leading_zeros() as i64 - 3;
        mantissa <<= shift;
        exponent += 60 - shift;
    }
    if let Some(precision) = precision.filter(|precision| *precision < 15) {
        let shift = 60 - precision * 4;
        let extra = mantissa & ((1 << shift) - 1);
        mantissa >>= shift;
        // Rounds to the nearest, ties to even.
        let half = 1 << (shift - 1);
        mantissa += u64::from(extra > half || (extra == half && mantissa & 1 == 1));
        mantissa <<= shift;
        if mantissa >= 1 << 61 {
            mantissa >>= 1;
            exponent += 1;
        }
    }
    let fraction = format!("{:015x}", mantissa & ((1 << 60) - 1));
    let fraction = match precision {
        None => fraction.trim_end_matches('0').to_string(),
        Some(precision) => {
            let zeros = "0".repeat(precision.saturating_sub(fraction.len()));
            format!("{}{zeros}", &fraction[..precision.min(fraction.len())])
        }
    };
    let dot = if fraction.is_empty() { "" } else { "." };
    let (direction, size) = (if exponent < 0 { '-' } else { '+' }, exponent.unsigned_abs());
    let text = format!("0x{}{dot}{fraction}p{direction}{size:02}", mantissa >> 60);
    if upper { text.to_uppercase() } else { text }
}

/// `%#g`: always with a point, and with the trailing zeros that `%g` drops.
pub fn with_point(text: &str, verb: char, precision: Option<usize>) -> String {
    let mark = |c: char| match verb {
        'x' | 'X' => matches!(c, 'p' | 'P'),
        _ => matches!(c, 'e' | 'E'),
    };
    let end = text.find(mark).unwrap_or(text.len());
    let (number, tail) = text.split_at(end);
    let digits_needed = match verb {
        'g' | 'G' | 'x' => precision.unwrap_or(6),
        _ => 0,
    };
    let digits = number.chars().filter(|c| *c != '.');
    let mut shown = digits.skip_while(|c| *c == '0').count();
    let mut number = number.to_string();
    if !number.contains('.') {
        // A single zero counts as one digit.
        if number == "0" {
            shown += 1;
        }
        number.push('.');
    }
    number.push_str(&"0".repeat(digits_needed.saturating_sub(shown)));
    number + tail
}
