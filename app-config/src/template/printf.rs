//! `printf` as in Go's `fmt`: flags, width, precision, `*`, argument numbers. A verb that does not
//! match its value is not an error; it prints `%!d(string=hi)` as Go does.
use super::{
    functions::Answer,
    value::Value,
    verbs::{Form, Printer},
};

/// Maximum width and precision. Go treats larger numbers as an error.
const MAX_WIDTH: i64 = 1_000_000;

pub fn printf(arguments: &[Value], most: usize) -> Answer {
    let Some((Value::Text(form), rest)) = arguments.split_first() else {
        return Err("requires a format".to_string());
    };
    Ok(Value::text(formatted(form, rest, most)))
}

fn formatted(form: &str, arguments: &[Value], most: usize) -> String {
    let mut printf = Printf::new(form, arguments, most);
    printf.all();
    printf.printer.out
}

/// Formats arguments, if the format prints the argument at `place` exactly once, as plain `%s` or
/// `%v`: without flags, width, precision and number.
pub fn formatted_with_plain(
    form: &str,
    arguments: &[Value],
    place: usize,
    most: usize,
) -> Option<String> {
    let mut printf = Printf::new(form, arguments, most);
    printf.watched = Some(place);
    printf.all();
    let is_plain = printf.plain_uses == 1 && printf.other_uses == 0;
    (is_plain && !printf.printer.is_full()).then_some(printf.printer.out)
}

struct Printf<'a> {
    rest: &'a str,
    arguments: &'a [Value],
    next: usize,
    /// True if an argument was selected by number. Unused arguments are then not reported.
    numbered: bool,
    good_number: bool,
    /// Argument whose uses are counted.
    watched: Option<usize>,
    plain_uses: usize,
    other_uses: usize,
    printer: Printer,
}

impl<'a> Printf<'a> {
    fn new(form: &'a str, arguments: &'a [Value], most: usize) -> Self {
        Printf {
            rest: form,
            arguments,
            next: 0,
            numbered: false,
            good_number: true,
            watched: None,
            plain_uses: 0,
            other_uses: 0,
            printer: Printer::new(most),
        }
    }

    fn all(&mut self) {
        while let Some(at) = self.rest.find('%') {
            if self.printer.is_full() {
                return;
            }
            self.printer.out.push_str(&self.rest[..at]);
            self.rest = &self.rest[at + 1..];
            if !self.one() {
                break;
            }
        }
        self.printer.out.push_str(self.rest);
        self.extra();
    }

    /// Formats one verb. Returns false if the format ends before the verb.
    fn one(&mut self) -> bool {
        self.good_number = true;
        let directive = self.rest;
        let mut form = self.flags();
        let mut after_number = self.number();
        if self.takes('*') {
            let width = self.size_from_argument();
            if width.is_none() {
                self.printer.out.push_str("%!(BADWIDTH)");
            }
            form.minus |= width.is_some_and(|width| width < 0);
            form.zero &= !form.minus;
            form.width = width.map(|width| width.unsigned_abs() as usize);
            after_number = false;
        } else {
            form.width = self.size();
            if after_number && form.width.is_some() {
                self.good_number = false;
            }
        }
        if self.rest.len() > 1 && self.takes('.') {
            if after_number {
                self.good_number = false;
            }
            after_number = self.number();
            if self.takes('*') {
                let precision = self.size_from_argument().filter(|precision| *precision >= 0);
                if precision.is_none() {
                    self.printer.out.push_str("%!(BADPREC)");
                }
                form.precision = precision.map(|precision| precision as usize);
                after_number = false;
            } else {
                form.precision = Some(self.size().unwrap_or(0));
            }
        }
        if !after_number {
            self.number();
        }
        let Some(verb) = self.rest.chars().next() else {
            self.printer.out.push_str("%!(NOVERB)");
            return false;
        };
        self.rest = &self.rest[verb.len_utf8()..];
        if verb == '%' {
            self.printer.out.push('%');
        } else if !self.good_number {
            self.printer.out.push_str(&format!("%!{verb}(BADINDEX)"));
        } else if let Some(argument) = self.arguments.get(self.next) {
            self.count_use(matches!(verb, 's' | 'v') && directive.starts_with(verb));
            self.next += 1;
            if verb == 'v' {
                form.sharp_v = std::mem::take(&mut form.sharp);
                form.plus = false;
            }
            self.printer.form = form;
            self.printer.argument(argument, verb);
        } else {
            self.printer.out.push_str(&format!("%!{verb}(MISSING)"));
        }
        true
    }

    /// Counts a use of the next argument.
    fn count_use(&mut self, is_plain: bool) {
        if self.watched == Some(self.next) {
            let uses = if is_plain { &mut self.plain_uses } else { &mut self.other_uses };
            *uses += 1;
        }
    }

    fn takes(&mut self, c: char) -> bool {
        match self.rest.strip_prefix(c) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn flags(&mut self) -> Form {
        let mut form = Form::default();
        while let Some(flag) = self.rest.chars().next() {
            match flag {
                '-' => {
                    form.minus = true;
                    form.zero = false;
                }
                '+' => form.plus = true,
                ' ' => form.space = true,
                '0' => form.zero = !form.minus,
                '#' => form.sharp = true,
                _ => break,
            }
            self.rest = &self.rest[1..];
        }
        form
    }

    /// Parses digits as a size. A size that is too large consumes the rest of the format.
    fn size(&mut self) -> Option<usize> {
        let length =
            self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (digits, rest) = self.rest.split_at(length);
        let mut size = 0_i64;
        for digit in digits.bytes() {
            if size > MAX_WIDTH {
                self.rest = "";
                return None;
            }
            size = size * 10 + i64::from(digit - b'0');
        }
        self.rest = rest;
        (length > 0).then_some(size as usize)
    }

    fn size_from_argument(&mut self) -> Option<i64> {
        let argument = self.arguments.get(self.next)?;
        self.count_use(false);
        self.next += 1;
        argument.whole().filter(|size| (-MAX_WIDTH..=MAX_WIDTH).contains(size))
    }

    /// Parses `[2]`, the number of the next argument.
    fn number(&mut self) -> bool {
        let Some(inner) = self.rest.strip_prefix('[') else { return false };
        self.numbered = true;
        let Some((written, rest)) = inner.split_once(']').filter(|_| self.rest.len() >= 3) else {
            self.rest = inner;
            self.good_number = false;
            return false;
        };
        self.rest = rest;
        let digits = written.bytes().all(|byte| byte.is_ascii_digit()) && !written.is_empty();
        let number = written
            .parse::<usize>()
            .ok()
            .filter(|number| digits && *number as i64 <= MAX_WIDTH * 10);
        match number {
            Some(number) if (1..=self.arguments.len()).contains(&number) => {
                self.next = number - 1;
                true
            }
            Some(_) => {
                self.good_number = false;
                true
            }
            None => {
                self.good_number = false;
                false
            }
        }
    }

    fn extra(&mut self) {
        let extra = self.arguments.get(self.next..).unwrap_or_default();
        if self.numbered || extra.is_empty() {
            return;
        }
        self.printer.form = Form::default();
        self.printer.out.push_str("%!(EXTRA ");
        for (at, argument) in extra.iter().enumerate() {
            if at > 0 {
                self.printer.out.push_str(", ");
            }
            self.printer.typed(argument);
        }
        self.printer.out.push(')');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_print_what_go_prints() {
        let cases: [(&str, Vec<Value>, &str); 18] = [
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
            ("%[2]s %[1]d", vec![Value::Int(1), Value::text("a")], "a 1"),
            (
                "%*d|%-*d",
                vec![Value::Int(3), Value::Int(1), Value::Int(3), Value::Int(2)],
                "  1|2  ",
            ),
            (
                "%#v",
                vec![Value::list(vec![Value::text("a"), Value::Int(1)])],
                r#"[]interface {}{"a", 1}"#,
            ),
            ("%#x %x", vec![Value::Int(255), Value::Float(1.0)], "0xff 0x1p+00"),
        ];
        for (form, arguments, expected) in cases {
            assert_eq!(formatted(form, &arguments, 1 << 20), expected, "{form}");
        }
    }

    #[test]
    fn a_plain_argument_is_printed_once_and_unchanged() {
        let arguments = [Value::Int(7), Value::text("s"), Value::text("t")];
        for (form, expected) in [
            ("%d %s %s", Some("7 s t")),
            ("%05d|%v|%-3s", Some("00007|s|t  ")),
            ("%*s%[2]d", None),
            ("%[1]d %s", Some("7 s")),
            ("%d%% %s %q", Some("7% s \"t\"")),
            ("%d %s", Some("7 s%!(EXTRA string=t)")),
            ("%[3]s", None),
            ("%d", None),
            ("%d %[2]s %s", None),
            ("%d %s %[2]s", None),
            ("%d %s%[2]%%s", None),
            ("%d %*d%[2]%%s", None),
            ("%d %*s%s", None),
            ("%d %.*s%s", None),
            ("%d %.4s %s", None),
            ("%d %.100000s %s", None),
            ("%d %1s %s", None),
            ("%d %-1s %s", None),
            ("%d %0s %s", None),
            ("%d %+v %s", None),
            ("%d % s %s", None),
            ("%d %#v %s", None),
            ("%d %q %s", None),
            ("%d %x %s", None),
        ] {
            let found = formatted_with_plain(form, &arguments, 1, 1 << 20);
            assert_eq!(found.as_deref(), expected, "{form}");
        }
        assert_eq!(formatted_with_plain("%d %s", &arguments[..2], 1, 2), None);
    }

    #[test]
    fn any_requested_number_of_digits_is_printed() {
        let zeros = "0".repeat(69_999);
        let cases = [
            ("%.70000f", Value::Float(1.5), format!("1.5{zeros}")),
            ("%.70000F", Value::Float(1.5), format!("1.5{zeros}")),
            ("%.70000e", Value::Float(1.5), format!("1.5{zeros}e+00")),
            ("%.70000E", Value::Float(1.5), format!("1.5{zeros}E+00")),
            ("%.70000g", Value::Float(1.5), "1.5".to_string()),
            ("%#.70000g", Value::Float(1.5), format!("1.5{}", &zeros[1..])),
            ("%.70000x", Value::Float(1.5), format!("0x1.8{zeros}p+00")),
            ("%.70000X", Value::Float(1.5), format!("0X1.8{zeros}P+00")),
            ("%.70000U", Value::Int(0x41), format!("U+{}41", &zeros[1..])),
            ("%.70000d", Value::Int(1), format!("{zeros}1")),
            (
                "%70000.70000b",
                Value::Float(1.0),
                format!("{}4503599627370496p-52", " ".repeat(69_980)),
            ),
            ("%.70000s", Value::text("a"), "a".to_string()),
            ("%.70000q", Value::text("a"), "\"a\"".to_string()),
            ("%.70000v", Value::Float(1.5), "1.5".to_string()),
        ];
        for (form, argument, expected) in cases {
            let found = formatted(form, &[argument], 1 << 20);
            assert!(found == expected, "{form}: {} bytes", found.len());
        }
        let exact = formatted("%.1074f", &[Value::Float(f64::from_bits(1))], 1 << 20);
        assert!(exact.ends_with("625") && exact.len() == 1076, "{exact}");
        let least = formatted("%.2000f", &[Value::Float(f64::from_bits(1))], 1 << 20);
        assert_eq!(least, exact + &"0".repeat(926));
    }
}
