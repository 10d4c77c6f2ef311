package release

import (
	"fmt"
	"math"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"svc.dev/svc/test/launch"
)

// costRounds is the variable with the number of rounds of TestCostOfReleases.
const costRounds = "COST_ROUNDS"

// costReleases are compared; the documents' is 1.28.
var costReleases = []string{"1.16", "1.22", "1.28", "1.33", "1.37"}

// cost is what one server used.
type cost struct {
	start, list time.Duration // of processor time: until it is ready, and for a list
	memory      float64       // anonymous, in MiB, when it is idle
}

// The lists of TestCostOfReleases.
const (
	listedObjects = 300
	lists         = 40
)

// TestCostOfReleases measures what each of some releases costs, in turns, and logs a table
// for docs/releases.md. It asserts nothing, since other programs use the machine too.
func TestCostOfReleases(t *testing.T) {
	rounds, err := strconv.Atoi(os.Getenv(costRounds))
	if err != nil {
		t.Skip("a measurement, by hand: " + costRounds + "=5 SVC=$PWD/bin/svc go test -v -timeout 60m -run TestCostOfReleases ./test/peers/release")
	}
	costs := map[string][]cost{}
	for range rounds {
		for _, release := range costReleases {
			costs[release] = append(costs[release], measure(t, release))
		}
	}
	var table strings.Builder
	for _, release := range costReleases {
		of := func(what func(cost) float64) float64 {
			var values []float64
			for _, c := range costs[release] {
				values = append(values, what(c))
			}
			slices.Sort(values)
			return values[len(values)/2]
		}
		fmt.Fprintf(&table, "| %s | %.2f s | %.0f MiB | %.1f ms |\n", release,
			of(func(c cost) float64 { return c.start.Seconds() }), of(func(c cost) float64 { return c.memory }), of(func(c cost) float64 { return float64(c.list.Microseconds()) / 1000 }))
	}
	t.Logf("medians of %d rounds\n| release | start | memory | list |\n|---|---|---|---|\n%s", rounds, &table)
}

// measure starts a server of a release with an empty data directory.
func measure(t *testing.T, release string) cost {
	t.Helper()
	s, err := launch.Up(t.Context(), t.TempDir(), launch.WithoutControllers("--release="+release)...)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	var c cost
	c.start = processorTime(t, s.Pid())
	c.memory = settled(t, s.Pid())
	for i := range listedObjects {
		body := fmt.Sprintf(`{"metadata":{"name":"cost-%d"},"spec":{"containers":[{"name":"c","image":"i","env":[{"name":"a","value":"b"}]}]}}`, i)
		answer := request(t, s, launch.Request{Method: http.MethodPost, Path: "/api/v1/namespaces/default/pods", ContentType: "application/json", Body: body})
		if answer.Status != http.StatusCreated {
			t.Fatalf("%d %s", answer.Status, answer.Body)
		}
	}
	before := processorTime(t, s.Pid())
	for range lists {
		if answer := request(t, s, launch.Request{Method: http.MethodGet, Path: "/api/v1/pods"}); answer.Status != http.StatusOK {
			t.Fatalf("%d %s", answer.Status, answer.Body)
		}
	}
	c.list = (processorTime(t, s.Pid()) - before) / lists
	return c
}

func request(t *testing.T, s *launch.Server, r launch.Request) launch.Response {
	t.Helper()
	answer, err := launch.Send(t.Context(), s.Config, r)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// settled returns the anonymous memory of a process when it does not fall any more.
func settled(t *testing.T, pid int) float64 {
	t.Helper()
	least, ticker := math.Inf(1), time.NewTicker(time.Second)
	defer ticker.Stop()
	for same := 0; same < 6; same++ {
		<-ticker.C
		if now := anonymous(t, pid); now < least-0.5 {
			least, same = now, 0
		}
	}
	return least
}

func anonymous(t *testing.T, pid int) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if text, found := strings.CutPrefix(line, "RssAnon:"); found {
			kib, err := strconv.ParseFloat(strings.Fields(text)[0], 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib / 1024
		}
	}
	t.Fatal("/proc has no RssAnon")
	return 0
}

// processorTime returns the user and system time of a process (proc_pid_stat(5)).
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int
	for _, field := range fields[11:13] { // utime and stime, the 14th and 15th of all
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond // USER_HZ is 100
}
