package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"
)

// A row is a figure that both systems are measured by.
type row struct {
	Name   string `json:"name"`   // what was done, such as "pods create, 16 clients"
	Figure string `json:"figure"` // what was measured of it, such as "p99"
	Unit   string `json:"unit"`
	Higher bool   `json:"higherIsBetter"`
	// Floor marks a figure of something that both systems use, such as the
	// container runtime.
	Floor bool `json:"floor,omitempty"`
	// At is the number of objects that exist, of a figure that the plot shows by it.
	At int `json:"at,omitempty"`
}

func lower(name, figure, unit string) row { return row{Name: name, Figure: figure, Unit: unit} }
func higher(name, figure, unit string) row {
	return row{Name: name, Figure: figure, Unit: unit, Higher: true}
}

func floor(name, figure, unit string) row {
	return row{Name: name, Figure: figure, Unit: unit, Floor: true}
}

// A goal bounds the ratio svc / kube of the rows with a name and figure, or,
// if it is absolute, the value of svc itself.
type goal struct {
	name, figure string
	limit        float64 // at most, or at least where higher is better
	absolute     bool
}

// goals returns the goals of the project. A row without a goal of its own has the
// goal 1.0: no figure may be worse.
func goals() []goal {
	return []goal{
		{name: "start, first", figure: "time", limit: 220, absolute: true},
		{name: "start, again", figure: "time", limit: 0.08},
		{name: "idle", figure: "memory, RSS", limit: 0.40},
		{name: "idle", figure: "processor", limit: 250, absolute: true},
		{name: "configmaps create, 16 clients", figure: "rate", limit: 1.8},
		{name: "pods create, 16 clients", figure: "rate", limit: 1.8},
		{name: "list pods, JSON", figure: "p50", limit: 0.12},
		{name: "list pods, protobuf", figure: "p50", limit: 0.2},
		{name: "fan-out to 100 watchers", figure: "p99", limit: 0.7},
		{name: "fan-out to 1000 watchers", figure: "p99", limit: 0.1},
		{name: "many pods", figure: "memory, RSS", limit: 0.35},
		{name: "managers idle", figure: "memory, RSS", limit: 0.3},
		{name: "managers idle", figure: "processor", limit: 0.15},
		{name: "pods scheduled", figure: "rate", limit: 2},
		{name: "pods scheduled on many nodes", figure: "rate", limit: 2},
		{name: "deployments rolled out", figure: "rate", limit: 1.5},
		{name: "namespace of ConfigMaps deleted", figure: "rate", limit: 1.5},
		{name: "dependents collected", figure: "rate", limit: 1.5},
		{name: "stateful pods started", figure: "rate", limit: 2},
		{name: "stateful pods rolled", figure: "rate", limit: 2},
		{name: "daemon pods started", figure: "rate", limit: 2},
		{name: "daemon pods rolled", figure: "rate", limit: 2},
		{name: "cron jobs at once", figure: "rate", limit: 2},
		{name: "claims bound", figure: "rate", limit: 2},
		{name: "pods preempted others", figure: "rate", limit: 2},
		{name: agentRow(0), figure: "memory, RSS", limit: 30, absolute: true},
		{name: agentRow(10), figure: "memory, RSS", limit: 0.4},
		{name: agentRow(50), figure: "memory, RSS", limit: 0.4},
		{name: diskFull, figure: "p50", limit: 1_000, absolute: true},
		{name: agentRow(0), figure: "processor", limit: 0.05},
		{name: agentRow(10), figure: "processor", limit: 0.05},
		{name: agentRow(50), figure: "processor", limit: 0.05},
		{name: crowdRows + ": all requests", figure: "p99", limit: responsive, absolute: true},
		{name: crowdRows + ": event of a change", figure: "p99", limit: responsive, absolute: true},
		{name: manyRows, figure: "memory, RSS", limit: 6_000, absolute: true},
		{name: clusterRows + ": all requests", figure: "p99", limit: responsive, absolute: true},
		{name: clusterRows + ": event of a change", figure: "p99", limit: responsive, absolute: true},
		{name: "create to Running, one by one", figure: aboveRuntime, limit: 30, absolute: true},
		{name: atOnceRow(fullSizes().AgentMass), figure: "the last one", limit: 0.7},
	}
}

// Verdicts on a row.
const (
	met     = "met"
	missed  = "MISSED"
	ok      = "ok"
	worse   = "WORSE"
	unclear = "worse within the spread"
)

// result is a row with the values of all rounds.
type result struct {
	row
	SVC   summary  `json:"svc"`
	Kube  summary  `json:"kube"`
	Ratio *float64 `json:"ratio,omitempty"` // svc / kube, of the medians
	Goal  *float64 `json:"goal,omitempty"`
	// Absolute means that the goal bounds the value of svc, not the ratio.
	Absolute bool   `json:"absolute,omitempty"`
	Verdict  string `json:"verdict,omitempty"`
}

// summary has the values of a system, one for each round.
type summary struct {
	Values []float64 `json:"values"`
	Median *float64  `json:"median,omitempty"`
}

func summarize(values []float64) summary {
	s := summary{Values: values}
	if len(values) > 0 {
		m := median(values)
		s.Median = &m
	}
	return s
}

// String returns the median with the smallest and the largest value.
func (s summary) String() string {
	if s.Median == nil {
		return "-"
	}
	if len(s.Values) == 1 {
		return figures(*s.Median)
	}
	return fmt.Sprintf("%s (%s-%s)", figures(*s.Median), figures(slices.Min(s.Values)), figures(slices.Max(s.Values)))
}

// figures formats a value with three significant figures.
func figures(v float64) string {
	if v == 0 {
		return "0"
	}
	decimals := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return fmt.Sprintf("%.*f", min(max(decimals, 0), 6), v)
}

// evaluate returns the result of a row: the ratio, the goal and the verdict.
func evaluate(r row, svc, kube []float64) result {
	res := result{row: r, SVC: summarize(svc), Kube: summarize(kube)}
	limit, absolute := 1.0, false
	if i := slices.IndexFunc(goals(), func(g goal) bool { return g.name == r.Name && g.figure == r.Figure }); i >= 0 {
		limit, absolute = goals()[i].limit, goals()[i].absolute
		res.Goal, res.Absolute = &limit, absolute
	}
	if res.SVC.Median == nil || r.Floor {
		return res
	}
	if res.Kube.Median != nil && *res.Kube.Median != 0 {
		ratio := *res.SVC.Median / *res.Kube.Median
		res.Ratio = &ratio
	}
	compared := res.Ratio
	if absolute {
		compared = res.SVC.Median
	}
	if compared == nil {
		return res
	}
	reached := *compared <= limit
	if r.Higher {
		reached = *compared >= limit
	}
	switch overlap := len(kube) > 0 && slices.Min(svc) <= slices.Max(kube) && slices.Min(kube) <= slices.Max(svc); {
	case res.Goal != nil && reached:
		res.Verdict = met
	case res.Goal != nil:
		res.Verdict = missed
	case reached:
		res.Verdict = ok
	case overlap:
		res.Verdict = unclear
	default:
		res.Verdict = worse
	}
	return res
}

// report has the results of a run of the benchmark.
type report struct {
	dir      string              // where the data is
	Date     time.Time           `json:"date"`
	Machine  machine             `json:"machine"`
	Rounds   int                 `json:"rounds"`
	Quick    bool                `json:"quick"`
	Sizes    sizes               `json:"sizes"`
	Commands map[string][]string `json:"commands"` // of each system's processes
	Results  []result            `json:"results"`
}

func (r report) writeJSON(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(r)
}

func (r report) writeText(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s, %s\n", r.Date.Format(time.DateTime), r.Machine, plural(r.Rounds, "round"))
	for _, name := range []string{"svc", "kube"} {
		for _, command := range r.Commands[name] {
			fmt.Fprintf(&b, "%s: %s\n", name, command)
		}
	}
	if r.Quick {
		b.WriteString("A quick run: its figures say little.\n")
	}
	b.WriteString("Medians (smallest-largest); the ratio is svc / kube.\n")
	heading := fmt.Sprintf("%-36s %-20s %-7s %26s %26s %7s\n", "", "", "", "svc", "kube", "ratio")
	b.WriteString(heading)
	name := ""
	for _, res := range r.Results {
		shown := res.Name
		if shown == name {
			shown = ""
		}
		name = res.Name
		b.WriteString(res.line(shown))
	}
	b.WriteString("\nGoals, and what is worse than kube:\n" + heading)
	for _, res := range r.Results {
		if res.Goal != nil || res.Verdict == worse || res.Verdict == unclear {
			b.WriteString(res.line(res.Name))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// line returns a table line of the result. The name is empty if the line above has
// the same.
func (r result) line(name string) string {
	ratio, bound := "-", ""
	if r.Ratio != nil {
		ratio = fmt.Sprintf("%.2f", *r.Ratio)
	}
	if r.Goal != nil {
		bound = fmt.Sprintf("<= %.2f ", *r.Goal)
		if r.Higher {
			bound = fmt.Sprintf(">= %.2f ", *r.Goal)
		}
		if r.Absolute {
			bound = fmt.Sprintf("%s %s: %s", "svc", r.Unit, bound)
		}
	}
	line := fmt.Sprintf("%-36s %-20s %-7s %26s %26s %7s  %s%s", name, r.Figure, r.Unit, r.SVC, r.Kube, ratio, bound, r.Verdict)
	return strings.TrimRight(line, " ") + "\n"
}
