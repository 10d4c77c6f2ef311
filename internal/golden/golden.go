// Package golden owns the format of golden scripts: files of commands, each
// with its expected output, that tests run against a state machine.
//
// A script is a file testdata/*.txt:
//
//	# A comment. Blank lines are ignored, too.
//
//	== a case, which begins with a new handler
//	node a cpu=2
//	pod web
//	  continuation lines are indented by two spaces
//	-- output lines follow the command that printed them
//
// go test ./the/package -update rewrites the output of all scripts.
//
// github.com/cockroachdb/datadriven was not used: it needs a separator and a
// blank line after each command, and its grammar of arguments excludes the
// inline YAML and label sets of these scripts.
package golden

import (
	"path/filepath"
	"strings"
	"testing"

	"gotest.tools/v3/golden"
)

const (
	comment      = "#"
	newCase      = "== "
	output       = "--"
	continuation = "  "
)

// Command is one command of a script.
type Command struct {
	Name string   // the first word of its line
	Text string   // what follows the name
	Args []string // the words of Text
	Body string   // the continuation lines, as they are in the script
}

// Handler executes a command and returns its output: lines, or the empty string
// for none. It fails the test on a command that it does not know.
type Handler func(Command) string

// Run runs every script of the package's testdata as a subtest, and compares it
// with the output that the commands have now. Each case gets its own handler.
func Run(t *testing.T, newHandler func(t *testing.T) Handler) {
	t.Helper()
	scripts, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("No scripts in testdata: %v", err)
	}
	for _, script := range scripts {
		name := filepath.Base(script)
		t.Run(strings.TrimSuffix(name, ".txt"), func(t *testing.T) {
			got := play(t, string(golden.Get(t, name)), newHandler)
			if !t.Failed() {
				golden.Assert(t, got, name)
			}
		})
	}
}

// play returns the script with the output that its commands have now.
func play(t *testing.T, script string, newHandler func(t *testing.T) Handler) string {
	t.Helper()
	handle := newHandler(t)
	lines := strings.Split(strings.TrimRight(script, "\n"), "\n")
	var out strings.Builder
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if strings.HasPrefix(line, output) {
			continue
		}
		out.WriteString(line + "\n")
		switch {
		case strings.TrimSpace(line) == "", strings.HasPrefix(line, comment):
			continue
		case strings.HasPrefix(line, newCase):
			handle = newHandler(t)
			continue
		}
		first := i
		for i+1 < len(lines) && strings.HasPrefix(lines[i+1], continuation) {
			i++
			out.WriteString(lines[i] + "\n")
		}
		command := parse(line)
		command.Body = strings.Join(lines[first+1:i+1], "\n")
		out.WriteString(marked(execute(t, first+1, command, handle)))
	}
	return out.String()
}

func parse(line string) Command {
	name, text, _ := strings.Cut(line, " ")
	return Command{Name: name, Text: text, Args: strings.Fields(text)}
}

// execute runs a command and, when it fails the test, reports its line.
func execute(t *testing.T, line int, command Command, handle Handler) string {
	failedBefore := t.Failed()
	defer func() {
		if t.Failed() && !failedBefore {
			t.Logf("The command that failed is in line %d: %s %s", line, command.Name, command.Text)
		}
	}()
	return handle(command)
}

// marked returns the output with the mark that tells it from commands.
func marked(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		out.WriteString(strings.TrimRight(output+" "+strings.TrimRight(line, "\n"), " ") + "\n")
	}
	return out.String()
}
