//! Operands of a call: fields of the state, variables, literals.
use super::{Generator, KINDS, Kind};

impl Generator {
    pub(super) fn operand(&mut self, preferred: Kind) {
        let kind = if self.chance(15) { self.kind() } else { preferred };
        self.depth += 1;
        let top = if self.depth > 7 { 9 } else { 12 };
        match self.random.below(top) {
            0 if !self.vars.is_empty() => {
                let name = self.variable();
                self.put(&name);
                if self.chance(6) {
                    self.pick(&[".k", ".name", ".deep.er", ".zz"]);
                }
            }
            1 if self.dot == kind && kind != Kind::Root => self.put("."),
            2 if self.dot == Kind::Map => self.pick(&[".k", ".deep.er", ".deep.list", ".zz"]),
            3 | 4 => self.literal(kind),
            10 | 11 => {
                self.put("(");
                self.expression(kind);
                self.put(")");
                if kind == Kind::Map && self.chance(3) {
                    self.pick(&[".k", ".a", ".zz", ".b.c"]);
                }
            }
            _ => {
                if self.dot != Kind::Root || self.chance(4) {
                    self.put("$");
                }
                self.read(kind);
            }
        }
        self.depth -= 1;
    }

    pub(super) fn read(&mut self, kind: Kind) {
        match kind {
            Kind::Text => self.pick(&[
                ".nuon.a",
                ".nuon.b",
                ".nuon.e",
                ".nuon.digits",
                ".nuon.hexa",
                ".nuon.oct",
                ".nuon.point",
                ".nuon.m.k",
                ".nuon.one.only",
            ]),
            Kind::Number => self.pick(&[
                ".nuon.z",
                ".nuon.num",
                ".nuon.big",
                ".nuon.frac",
                ".nuon.neg",
                ".nuon.tiny",
                ".nuon.huge",
                ".nuon.m.num",
            ]),
            Kind::Int => self.pick(&[".nuon.num"]),
            Kind::Bool => self.pick(&[".nuon.t", ".nuon.f", ".nuon.m.flag"]),
            Kind::List => self.pick(&[
                ".nuon.l",
                ".nuon.nums",
                ".nuon.none",
                ".nuon.mixed",
                ".nuon.objects",
                ".nuon.m.deep.list",
            ]),
            Kind::Map => {
                self.pick(&[".nuon.m", ".nuon.one", ".nuon.empty", ".nuon.m.deep", ".nuon"])
            }
            Kind::Any | Kind::Root => match self.random.below(12) {
                0 => self.pick(&[
                    ".nuon.zz",
                    ".nuon.a.b",
                    ".nuon.n.x",
                    ".zz",
                    ".nuon.l.x",
                    ".nuon.m.deep.er.x",
                ]),
                1 => self.pick(&[".nuon.n", ".nuon.m.n"]),
                _ => {
                    let kind = KINDS[1 + self.random.below(KINDS.len() - 1)];
                    self.read(kind);
                }
            },
        }
    }

    pub(super) fn literal(&mut self, kind: Kind) {
        if self.chance(60) {
            // Some of these literals are not valid numbers.
            return self.pick(&[
                "1e400",
                "0x1.8",
                "9223372036854775808",
                "089",
                "1__0",
                "99999999999999999999",
                "\"\\'\"",
                "'ab'",
                "1.2.3",
                "0b12",
                "0o8",
                "0x",
                "1e",
                "+",
                "'\\\"'",
                "\"\\400\"",
                "\"\\ud800\"",
                "0xg",
                "''",
                "-0",
                "1_",
                "0_7",
                "0x_1",
                "1_e3",
            ]);
        }
        match kind {
            Kind::Text => self.pick(&[
                "\"\"",
                "\"a\"",
                "`raw\\n`",
                "\"q\\\"\\n\\t\"",
                "\"\\u00e9\\x41\\101\"",
                "\"k\"",
                "\"-\"",
                "\", \"",
                "`a\nb`",
                "\"3\"",
                "\"0x1F\"",
                "\"<&>\"",
                "\"\\xc3\\xa9\"",
                "\"é☃\"",
            ]),
            Kind::Number => self.pick(&[
                "1.5",
                "1e3",
                "0x1p4",
                ".5",
                "1_000.5",
                "-2.",
                "3",
                "1e-9",
                "123456789.0",
                "0x.8p1",
                "+1.25",
                "1e21",
                "100000.0",
                "5e-324",
            ]),
            Kind::Int => self.pick(&[
                "0",
                "1",
                "2",
                "-1",
                "3",
                "0x1F",
                "017",
                "0b11",
                "0o17",
                "1_0",
                "'a'",
                "'\\n'",
                "'é'",
                "2.0",
                "+4",
                "9223372036854775807",
                "'\\''",
            ]),
            Kind::Bool => self.pick(&["true", "false"]),
            Kind::List => self.pick(&["(list)", "(list 1)", "(list \"a\" nil)"]),
            Kind::Map => self.pick(&["(dict)", "(dict \"a\" 1)", "(dict \"k\" (dict \"x\" 2.0))"]),
            Kind::Any | Kind::Root => match self.random.below(14) {
                0 => self.put("nil"),
                1 => self.put("."),
                2 => self.put("$"),
                _ => {
                    let kind = KINDS[1 + self.random.below(KINDS.len() - 1)];
                    self.literal(kind);
                }
            },
        }
    }
}
