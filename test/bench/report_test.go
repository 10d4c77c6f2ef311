package main

import (
	"strings"
	"testing"
)

func TestVerdictsOfABenchmark(t *testing.T) {
	some, rate := lower("list pods, JSON, gzip", "p50", "ms"), higher("pods create, 1 client", "rate", "/s")
	goal, goalRate := lower("start, again", "time", "ms"), higher("pods create, 16 clients", "rate", "/s")
	for _, test := range []struct {
		name      string
		row       row
		svc, kube []float64
		want      string
	}{
		{"a lower time is ok", some, []float64{9}, []float64{10}, ok},
		{"the same time is ok", some, []float64{10}, []float64{10}, ok},
		{"a higher time is worse", some, []float64{11}, []float64{10}, worse},
		{"a higher time within the spread is said to be that", some, []float64{9, 11, 12}, []float64{8, 10, 11}, unclear},
		{"a lower rate is worse", rate, []float64{9}, []float64{10}, worse},
		{"a higher rate is ok", rate, []float64{11}, []float64{10}, ok},
		{"a goal is met at its limit", goal, []float64{8}, []float64{100}, met},
		{"better than kube can still miss a goal", goal, []float64{9}, []float64{100}, missed},
		{"a rate meets its goal from its limit on", goalRate, []float64{18}, []float64{10}, met},
		{"a higher rate can still miss its goal", goalRate, []float64{17}, []float64{10}, missed},
		{"a goal of its own is met whatever kube does", lower("create to Running, one by one", aboveRuntime, "ms"), []float64{30}, []float64{10}, met},
		{"a goal of its own can be missed", lower("create to Running, one by one", aboveRuntime, "ms"), []float64{31}, []float64{500}, missed},
		{"a goal of its own is met or missed without kube", lower("many nodes: all requests", "p99", "ms"), []float64{1001}, nil, missed},
		{"what both stand on has no verdict", floor("the runtime alone", "p50", "ms"), []float64{2}, []float64{1}, ""},
		{"one system alone has no verdict", some, []float64{1}, nil, ""},
	} {
		if got := evaluate(test.row, test.svc, test.kube).Verdict; got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

func TestEveryGoalIsARowOfTheBenchmark(t *testing.T) {
	names := map[string]bool{}
	for _, k := range []kind{configMapKind(), podKind()} {
		for _, v := range verbs(k, verbNamespace) {
			for _, n := range clientCounts() {
				names[verbRow(k, v, n)] = true
			}
		}
	}
	for _, n := range fullSizes().Watchers {
		names[fanOutRow(n)] = true
	}
	for _, n := range append([]int{0}, fullSizes().AgentPods...) {
		names[agentRow(n)] = true
	}
	for _, name := range []string{
		"create to Running, one by one", atOnceRow(fullSizes().AgentMass), diskFull, "start, first", "start, again", "idle", "list pods, JSON", "list pods, protobuf", "many pods",
		crowdRows + ": all requests", crowdRows + ": event of a change", manyRows, clusterRows + ": all requests", clusterRows + ": event of a change",
		"managers idle", "pods scheduled", "pods scheduled on many nodes", "deployments rolled out",
		"stateful pods started", "stateful pods rolled", "daemon pods started", "daemon pods rolled", "cron jobs at once", "claims bound", "pods preempted others", "namespace of ConfigMaps deleted", "dependents collected",
	} {
		names[name] = true
	}
	for _, g := range goals() {
		if !names[g.name] {
			t.Errorf("no measure records %q", g.name)
		}
	}
}

func TestReportNamesEachRowOnceAndRepeatsTheGoals(t *testing.T) {
	l := newLedger()
	for _, v := range []struct {
		system string
		row    row
		value  float64
	}{
		{"svc", lower("start, again", "time", "ms"), 200}, {"kube", lower("start, again", "time", "ms"), 2500},
		{"svc", lower("idle", "memory, RSS", "MB"), 100}, {"kube", lower("idle", "memory, RSS", "MB"), 300},
		{"svc", lower("idle", "memory, PSS", "MB"), 90}, {"kube", lower("idle", "memory, PSS", "MB"), 290},
	} {
		l.add(v.system, v.row, v.value)
	}
	var b strings.Builder
	if err := (report{Rounds: 1, Results: l.results()}).writeText(&b); err != nil {
		t.Fatal(err)
	}
	table, summary, _ := strings.Cut(b.String(), "\nGoals")
	if n := strings.Count(table, "idle"); n != 1 {
		t.Errorf("idle is %d times in the table, want once:\n%s", n, table)
	}
	for _, want := range []string{"0.08  <= 0.08 met", "0.33  <= 0.40 met"} {
		if !strings.Contains(summary, want) {
			t.Errorf("%q is not in the summary:\n%s", want, summary)
		}
	}
	if strings.Contains(summary, "PSS") {
		t.Errorf("a row without a goal is in the summary:\n%s", summary)
	}
}

func TestFiguresHaveThreeSignificantDigits(t *testing.T) {
	for value, want := range map[float64]string{0: "0", 0.012345: "0.0123", 1.2345: "1.23", 12.345: "12.3", 12345: "12345"} {
		if got := figures(value); got != want {
			t.Errorf("figures(%v) = %s, want %s", value, got, want)
		}
	}
}
