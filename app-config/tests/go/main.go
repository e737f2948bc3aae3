// Renders templates with Go's own text/template and sprig's functions.
//
// Reads lines of JSON, each {"template": "…"}, and prints a line of JSON for each:
// {"text": "…"} or {"error": "parse" | "exec", "at": "line" | "line:byte", "why": "…"}.
// The first argument is the file with the state.
//
// With -bench N, parses and renders every template N times, and prints the time in nanoseconds.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/Masterminds/sprig"
)

// Only the sprig functions that Stead supports, so that all other functions are unknown here, too.
var known = strings.Fields(`append coalesce default dict dig div duration fromJson int64 join kindIs
	list lower set slice substr ternary toJson toPrettyJson values`)

type question struct {
	Template string          `json:"template"`
	State    json.RawMessage `json:"state"`
}

type answer struct {
	Text  *string `json:"text,omitempty"`
	Error string  `json:"error,omitempty"`
	At    string  `json:"at,omitempty"`
	Why   string  `json:"why,omitempty"`
}

func main() {
	functions := template.FuncMap{}
	for _, name := range known {
		functions[name] = sprig.TxtFuncMap()[name]
	}
	source, err := os.ReadFile(os.Args[1])
	check(err)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	var questions []question
	for lines.Scan() {
		var one question
		check(json.Unmarshal(lines.Bytes(), &one))
		questions = append(questions, one)
	}
	check(lines.Err())
	if len(os.Args) > 3 && os.Args[2] == "-bench" {
		rounds, err := strconv.Atoi(os.Args[3])
		check(err)
		bench(functions, questions, source, rounds)
		return
	}
	out := json.NewEncoder(os.Stdout)
	for _, one := range questions {
		check(out.Encode(ask(functions, one, source)))
	}
}

func parsed(functions template.FuncMap, text string) (*template.Template, error) {
	return template.New("input").Funcs(functions).Option("missingkey=error").Parse(text)
}

func ask(functions template.FuncMap, one question, source []byte) answer {
	tree, err := parsed(functions, one.Template)
	if err != nil {
		return failed("parse", err)
	}
	if one.State != nil {
		source = one.State
	}
	var state any
	check(json.Unmarshal(source, &state))
	var out strings.Builder
	if err := tree.Execute(&out, state); err != nil {
		return failed("exec", err)
	}
	text := out.String()
	return answer{Text: &text}
}

// Matches the first location in an error.
var place = regexp.MustCompile(`template: input:(\d+(?::\d+)?)`)

func failed(class string, err error) answer {
	at := ""
	if found := place.FindStringSubmatch(err.Error()); found != nil {
		at = found[1]
	}
	return answer{Error: class, At: at, Why: err.Error()}
}

// Parses and renders everything, and prints the time of the fastest round.
func bench(functions template.FuncMap, questions []question, source []byte, rounds int) {
	states := make([]any, len(questions))
	var shared any
	check(json.Unmarshal(source, &shared))
	for at, one := range questions {
		if one.State != nil {
			shared = nil
			check(json.Unmarshal(one.State, &shared))
		}
		// The templates of an app are adjacent, and only the first one has the state of the app.
		states[at] = shared
	}
	best := time.Duration(1 << 62)
	bytes := 0
	for round := 0; round < rounds; round++ {
		bytes = 0
		start := time.Now()
		for at, one := range questions {
			tree, err := parsed(functions, one.Template)
			if err != nil {
				continue
			}
			var out strings.Builder
			if tree.Execute(&out, states[at]) == nil {
				bytes += out.Len()
			}
		}
		if took := time.Since(start); took < best {
			best = took
		}
	}
	fmt.Printf("{\"nanoseconds\":%d,\"bytes\":%d,\"templates\":%d}\n", best, bytes, len(questions))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
