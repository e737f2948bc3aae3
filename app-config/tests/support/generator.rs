//! Makes templates from a grammar: mostly fitting ones over the state of `tests/go/state.json`, some
//! with wrong types, some with a character too many or too few.
//!
//! What Go leaves open, or does in a way that Stead does not follow on purpose, is not made here;
//! `docs/templates.md` lists it.

/// xorshift*: the same numbers of the same seed everywhere.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        // Spread, so that neighbours have nothing in common.
        let mut random = Random(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..4 {
            random.next();
        }
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 31
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.next() as usize % end.max(1)
    }
}

pub struct Generator {
    random: Random,
    out: String,
    vars: Vec<String>,
    named: usize,
    ranges: usize,
    depth: usize,
    /// What the dot is.
    dot: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Any,
    Text,
    Number,
    Int,
    Bool,
    List,
    Map,
    Root,
}

const KINDS: [Kind; 7] =
    [Kind::Any, Kind::Text, Kind::Number, Kind::Int, Kind::Bool, Kind::List, Kind::Map];

impl Generator {
    pub fn template(seed: u64) -> String {
        let mut generator = Generator {
            random: Random::new(seed),
            out: String::new(),
            vars: Vec::new(),
            named: 0,
            ranges: 0,
            depth: 0,
            dot: Kind::Root,
        };
        if generator.chance(8) {
            generator.definition();
        }
        generator.body();
        if generator.chance(6) {
            generator.damage();
        }
        generator.out
    }

    /// Once in so many.
    fn chance(&mut self, of: usize) -> bool {
        self.random.below(of) == 0
    }

    fn one<'c>(&mut self, of: &[&'c str]) -> &'c str {
        of[self.random.below(of.len())]
    }

    fn put(&mut self, text: &str) {
        self.out.push_str(text);
    }

    fn pick(&mut self, of: &[&str]) {
        let text = self.one(of);
        self.put(text);
    }

    fn open(&mut self) {
        self.pick(&["{{", "{{ ", "{{ ", "{{ ", "{{- ", "{{-\n", "{{\n "]);
    }

    fn close(&mut self) {
        self.pick(&["}}", " }}", " }}", " }}", " -}}", "\n-}}", "\n}}", "  -}}"]);
    }

    fn text(&mut self) {
        self.pick(&[
            "", "a", " b ", "\n", "x \n\t y", "é", "{ ", "}", "} }", "<p>", "--", "}}", "\r\n",
            "=\"q\"",
        ]);
    }

    fn body(&mut self) {
        let outer = self.vars.len();
        for _ in 0..=self.random.below(3) {
            self.text();
            self.node();
        }
        self.text();
        // Variables of a branch that was not taken are known to the parser and have no value.
        if !self.chance(20) {
            self.vars.truncate(outer);
        }
    }

    fn node(&mut self) {
        self.depth += 1;
        let deep = self.depth > 4;
        match self.random.below(if deep { 6 } else { 20 }) {
            0..=3 => {
                self.open();
                self.pipeline(Kind::Any);
                self.close();
            }
            4 => self.set(),
            5 if self.chance(40) => self.put("{{ /* bad */}}"),
            5 if self.chance(3) => {
                self.pick(&[
                    "{{/* note */}}",
                    "{{- /* a\n b */ -}}",
                    "{{/* x */ -}}",
                    "{{- /**/}}",
                ]);
            }
            5 => {
                self.open();
                self.operand(Kind::Any);
                self.close();
            }
            6..=9 => self.conditional("if"),
            10..=12 => self.conditional("with"),
            13..=16 => self.range(),
            17 => self.block(),
            18 => {
                if self.ranges > 0 || self.chance(10) {
                    let flow =
                        self.one(&["{{break}}", "{{continue}}", "{{ break }}", "{{- continue -}}"]);
                    self.put("{{ if ");
                    self.operand(Kind::Any);
                    self.put(" }}");
                    self.put(flow);
                    self.put("{{ end }}");
                }
            }
            _ => self.call_template(),
        }
        self.depth -= 1;
    }

    fn set(&mut self) {
        self.open();
        let kind = self.kind();
        if !self.vars.is_empty() && self.chance(3) {
            let name = self.variable();
            self.put(&name);
            self.pick(&[" = ", " = ", "= ", " ="]);
            self.pipeline(kind);
        } else {
            let name = format!("${}", self.one(&["x", "y", "z", "v1", "é"]));
            self.put(&name);
            self.pick(&[" := ", " := ", ":= ", " :=", ":="]);
            self.pipeline(kind);
            self.vars.push(name);
        }
        self.close();
    }

    fn variable(&mut self) -> String {
        let at = self.random.below(self.vars.len());
        self.vars.get(at).cloned().unwrap_or_else(|| "$".to_string())
    }

    fn conditional(&mut self, word: &str) {
        let (outer, dot) = (self.vars.len(), self.dot);
        self.open();
        self.put(word);
        self.put(" ");
        let kind = self.kind();
        if self.chance(6) {
            self.put("$c := ");
            self.pipeline(kind);
            self.vars.push("$c".to_string());
        } else {
            self.pipeline(kind);
        }
        self.close();
        if word == "with" {
            self.dot = kind;
        }
        self.body();
        self.dot = dot;
        while word == "if" && self.chance(4) {
            self.put("{{ else if ");
            self.pipeline(Kind::Any);
            self.put(" }}");
            self.body();
        }
        self.ending();
        self.vars.truncate(outer);
    }

    fn ending(&mut self) {
        if self.chance(3) {
            self.pick(&["{{ else }}", "{{- else -}}", "{{else}}"]);
            self.body();
        }
        self.pick(&["{{ end }}", "{{end}}", "{{- end }}", "{{ end -}}"]);
    }

    fn range(&mut self) {
        let (outer, dot) = (self.vars.len(), self.dot);
        self.open();
        self.put("range ");
        let declared = self.random.below(3);
        let names = [["$k", "$v"], ["$i", "$x"]][self.random.below(2)];
        match declared {
            1 => self.put(&format!("{} := ", names[1])),
            2 => self.put(&format!("{}, {} := ", names[0], names[1])),
            _ => {}
        }
        let kind = if self.chance(12) {
            Kind::Text
        } else if self.chance(2) {
            Kind::Map
        } else {
            Kind::List
        };
        self.pipeline(kind);
        self.close();
        match declared {
            1 => self.vars.push(names[1].to_string()),
            2 => self.vars.extend(names.map(String::from)),
            _ => {}
        }
        self.dot = Kind::Any;
        self.ranges += 1;
        self.body();
        self.ranges -= 1;
        self.dot = dot;
        self.ending();
        self.vars.truncate(outer);
    }

    fn separate(&mut self) {
        let vars = std::mem::take(&mut self.vars);
        let (ranges, dot) = (self.ranges, self.dot);
        self.ranges = 0;
        self.dot = Kind::Any;
        self.body();
        self.vars = vars;
        self.ranges = ranges;
        self.dot = dot;
    }

    fn definition(&mut self) {
        self.named += 1;
        let name = self.named;
        self.put(&format!("{{{{ define \"t{name}\" }}}}"));
        // Inside, only those with a smaller number are called: none calls itself.
        self.named = name - 1;
        self.separate();
        self.named = name;
        self.put("{{ end }}");
    }

    fn block(&mut self) {
        self.named += 100;
        let name = self.named;
        self.put(&format!("{{{{ block \"t{name}\" "));
        self.pipeline(Kind::Any);
        self.put(" }}");
        let named = std::mem::take(&mut self.named);
        self.separate();
        self.named = named;
        self.put("{{ end }}");
    }

    fn call_template(&mut self) {
        if self.named == 0 && !self.chance(5) {
            return;
        }
        let name = self.named;
        self.open();
        self.put(&format!("template \"t{name}\""));
        if !self.chance(4) {
            self.put(" ");
            self.pipeline(Kind::Any);
        }
        self.close();
    }

    fn kind(&mut self) -> Kind {
        KINDS[self.random.below(KINDS.len())]
    }

    fn pipeline(&mut self, kind: Kind) {
        if self.chance(4) {
            // A value, handed to a function that takes it last.
            match self.random.below(9) {
                0 => {
                    self.operand(Kind::Any);
                    self.put(" | default ");
                    self.operand(kind);
                }
                1 => {
                    self.operand(Kind::List);
                    self.put(" | join ");
                    self.operand(Kind::Text);
                }
                2 => {
                    self.operand(Kind::Text);
                    self.put(" | lower | printf \"%s\"");
                }
                3 => {
                    self.operand(Kind::Bool);
                    self.put(" | ternary ");
                    self.operand(kind);
                    self.put(" ");
                    self.operand(kind);
                }
                4 => {
                    self.operand(Kind::Any);
                    self.put(" | or ");
                    self.operand(kind);
                }
                5 => {
                    self.operand(Kind::Number);
                    self.put(" | int64 | duration");
                }
                6 => {
                    self.operand(Kind::Any);
                    self.pick(&[
                        " | toJson",
                        " | toPrettyJson",
                        " | html",
                        " | js",
                        " | urlquery",
                        " | len",
                        " | not",
                    ]);
                }
                7 => {
                    self.operand(Kind::Any);
                    self.put(" | printf ");
                    self.format();
                }
                _ => {
                    self.expression(Kind::Any);
                    self.put(" | ");
                    self.operand(kind);
                }
            }
            return;
        }
        self.expression(kind);
    }

    /// A function and its arguments, or an operand.
    fn expression(&mut self, wanted: Kind) {
        self.depth += 1;
        let kind = if self.chance(25) { self.kind() } else { wanted };
        if self.depth > 6 || self.chance(3) {
            self.operand(kind);
        } else {
            match kind {
                Kind::Text => self.text_call(),
                Kind::Int | Kind::Number => self.number_call(),
                Kind::Bool => self.bool_call(),
                Kind::List => self.list_call(),
                Kind::Map => self.map_call(),
                Kind::Any | Kind::Root => {
                    let kind = self.kind();
                    if kind == Kind::Any { self.any_call() } else { self.expression(kind) }
                }
            }
        }
        self.depth -= 1;
    }

    fn function(&mut self, name: &str, takes: &[Kind]) {
        self.put(name);
        let mut takes = takes.to_vec();
        if self.chance(40) {
            takes.pop();
        } else if self.chance(40) {
            takes.push(Kind::Any);
        }
        for kind in takes {
            self.put(" ");
            self.operand(kind);
        }
    }

    fn text_call(&mut self) {
        use Kind::{Any, Int, List, Number, Text};
        match self.random.below(14) {
            0 => self.function("lower", &[Text]),
            1 => {
                // ASCII only: half a character is no text here.
                self.put("substr ");
                self.operand(Int);
                self.put(" ");
                self.operand(Int);
                self.pick(&[" .nuon.a", " \"abc\"", " $.nuon.digits", " \"\""]);
            }
            2 => self.function("join", &[Text, List]),
            3 => self.function("join", &[Text, Any]),
            4 => self.function("print", &[Any, Any, Any]),
            5 => self.function("println", &[Any, Any]),
            6 => self.function("toJson", &[Any]),
            7 => self.function("toPrettyJson", &[Any]),
            8 => self.function("html", &[Any]),
            9 => self.function("js", &[Any]),
            10 => self.function("urlquery", &[Any]),
            11 => self.function("duration", &[Number]),
            _ => {
                self.put("printf ");
                self.format();
                for _ in 0..self.random.below(4) {
                    self.put(" ");
                    self.operand(Any);
                }
            }
        }
    }

    fn format(&mut self) {
        self.put("\"");
        for _ in 0..=self.random.below(3) {
            self.pick(&["", " ", "a", "%%", ":", "é"]);
            self.put("%");
            if self.chance(3) {
                self.pick(&["-", "+", " ", "0", "#", "-0", "+0", "0-", "# ", "+#"]);
            }
            if self.chance(8) {
                self.pick(&["[1]", "[2]", "[3]", "[9]", "[]", "[x]", "[1", "[-1]"]);
            }
            if self.chance(3) {
                self.pick(&["1", "3", "8", "12", "*"]);
            }
            if self.chance(4) {
                self.pick(&[".", ".0", ".1", ".2", ".5", ".*", ".[1]*"]);
            }
            self.pick(&[
                "v", "v", "v", "s", "s", "d", "d", "q", "t", "f", "g", "e", "x", "X", "o", "b",
                "c", "U", "T", "G", "E", "F", "O", "z", "w", "!", "é",
            ]);
        }
        self.put("\"");
    }

    fn number_call(&mut self) {
        use Kind::{Any, List, Map, Number, Text};
        match self.random.below(7) {
            0 => self.function("len", &[List]),
            1 => self.function("len", &[Text]),
            2 => self.function("len", &[Map]),
            3 => self.function("len", &[Any]),
            4 => self.function("int64", &[Any]),
            5 => self.function("div", &[Number, Number]),
            _ => self.function("index", &[Text, Kind::Int]),
        }
    }

    fn bool_call(&mut self) {
        let kind = self.kind();
        match self.random.below(9) {
            0 => self.function("not", &[Kind::Any]),
            1..=3 => {
                let name = self.one(&["eq", "ne", "lt", "le", "gt", "ge"]);
                self.function(name, &[kind, kind]);
            }
            4 => {
                let name = self.one(&["eq", "ne", "lt", "le", "gt", "ge"]);
                self.function(name, &[Kind::Any, Kind::Any]);
            }
            5 => self.function("eq", &[kind, kind, kind]),
            6 => {
                self.put("kindIs ");
                self.pick(&[
                    "\"map\"",
                    "\"slice\"",
                    "\"string\"",
                    "\"float64\"",
                    "\"invalid\"",
                    "\"int64\"",
                    "\"int\"",
                ]);
                self.put(" ");
                self.operand(Kind::Any);
            }
            7 => self.function("and", &[Kind::Bool, Kind::Bool]),
            _ => self.function("or", &[Kind::Bool, Kind::Bool]),
        }
    }

    fn list_call(&mut self) {
        match self.random.below(5) {
            0 => self.function("list", &[Kind::Any, Kind::Any, Kind::Any]),
            1 => self.function("append", &[Kind::List, Kind::Any]),
            // One value at most: Go gives them in any order.
            2 => self.pick(&[
                "values .nuon.one",
                "values $.nuon.empty",
                "values .nuon.n",
                "values nil",
                "values (dict \"a\" 1)",
            ]),
            3 => {
                // Within the length: behind it Go shows what memory holds.
                self.pick(&[
                    "slice .nuon.l 0 2",
                    "slice $.nuon.l 1",
                    "slice $.nuon.nums 1.0 3",
                    "slice .nuon.l 2 1",
                    "slice .nuon.none 4 5",
                    "slice $.nuon.l \"1\"",
                    "slice .nuon.a",
                    "slice nil",
                    "slice .nuon.l -1",
                ]);
            }
            _ => self.operand(Kind::List),
        }
    }

    fn map_call(&mut self) {
        match self.random.below(4) {
            0 => self.function("dict", &[Kind::Text, Kind::Any, Kind::Text, Kind::Any]),
            1 => self.function("dict", &[Kind::Any, Kind::Any, Kind::Any]),
            2 => {
                self.put("set (dict \"a\" 1) ");
                self.operand(Kind::Text);
                self.put(" ");
                self.operand(Kind::Any);
            }
            _ => self.pick(&[
                "fromJson .nuon.json",
                "fromJson $.nuon.bad_json",
                "fromJson \"[1,2]\"",
                "fromJson \"null\"",
            ]),
        }
    }

    fn any_call(&mut self) {
        use Kind::{Any, Int, List, Map, Text};
        match self.random.below(9) {
            0 => self.function("default", &[Any, Any]),
            1 => self.function("coalesce", &[Any, Any, Any]),
            2 => self.function("ternary", &[Any, Any, Kind::Bool]),
            3 => self.function("index", &[List, Int]),
            4 => {
                self.put("index ");
                self.operand(Map);
                self.pick(&[
                    " \"k\"",
                    " \"zz\"",
                    " \"n\"",
                    " \"deep\" \"er\"",
                    " \"n\" \"x\"",
                    " nil",
                    " 1",
                ]);
            }
            5 => {
                self.put("dig ");
                self.pick(&[
                    "\"k\" ",
                    "\"zz\" ",
                    "\"deep\" \"er\" ",
                    "\"k\" \"x\" ",
                    "\"n\" \"x\" ",
                    "\"deep\" \"no\" \"x\" ",
                    "1 ",
                    "",
                ]);
                self.operand(Any);
                self.put(" ");
                self.operand(Map);
            }
            6 => self.function("and", &[Any, Any, Any]),
            7 => self.function("or", &[Any, Any, Any]),
            _ => self.function("index", &[Any, Text]),
        }
    }

    fn operand(&mut self, wanted: Kind) {
        let kind = if self.chance(15) { self.kind() } else { wanted };
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

    fn read(&mut self, kind: Kind) {
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

    fn literal(&mut self, kind: Kind) {
        if self.chance(60) {
            // Some of these are none.
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

    /// Takes something away or puts something in, anywhere.
    fn damage(&mut self) {
        let places: Vec<usize> = self.out.char_indices().map(|(at, _)| at).collect();
        let at = places.get(self.random.below(places.len())).copied().unwrap_or_default();
        if self.chance(2) {
            if at < self.out.len() {
                self.out.remove(at);
            }
        } else {
            let extra = self.one(&[
                "{{",
                "}}",
                "\"",
                "(",
                ")",
                "|",
                ".",
                "$",
                " ",
                "-",
                "`",
                "'",
                "nope ",
                " end ",
                ",",
                "=",
                ":",
                "{{end}}",
                "{{else}}",
                "\\",
                "#",
                "1",
                "é",
                "\u{a0}",
                "/*",
                "*/",
                "*",
                "{{ template \"t9\" }}",
                "{{ define \"t1\" }}d{{ end }}",
                "nil",
                " true.x",
                "5.x",
            ]);
            self.out.insert_str(at, extra);
        }
    }
}
