package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/clock"

	"svc.dev/svc/internal/datadir"
)

const (
	// statusTimeout bounds each request of svc status.
	statusTimeout = 10 * time.Second
	// shownProblems is how many problems fit on a screen.
	shownProblems = 12
)

// clusterStatus is what `svc status -o json` prints.
type clusterStatus struct {
	DataDir  string `json:"dataDir"`
	ChosenBy string `json:"chosenBy"`
	Running  bool   `json:"running"`
	PID      int    `json:"pid,omitempty"`
	// Since is the start of svc up.
	Since   *time.Time `json:"since,omitempty"`
	Server  string     `json:"server,omitempty"`
	Version string     `json:"version,omitempty"`
	// Memory is in bytes; 0 is not available.
	Memory struct {
		Up   int64 `json:"up"`
		Pods int64 `json:"pods"`
	} `json:"memory"`
	Nodes    counted  `json:"nodes"`
	Pods     counted  `json:"pods"`
	Problems []string `json:"problems"`
}

// counted is how many of all objects are as they should be.
type counted struct {
	Good int `json:"good"`
	All  int `json:"all"`
}

func newStatus() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print what runs, where, and what is wrong",
		Long: `Print what runs on this machine, where, since when and with how much memory, and
what is wrong: nodes that are not ready or have no service proxy or DNS though they should,
pods that do not run, API services that are not available. The exit code is 1 if something is wrong or no svc up runs.`,
		Args: noArguments,
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "Print as json.")
	choose := dataDirFlag(cmd.Flags())
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if output != "" && output != "json" {
			return usageError{fmt.Errorf("--output: %q is not json; leave the flag out for text", output), cmd}
		}
		choice, err := choose(cmd)
		if err != nil {
			return err
		}
		s, err := statusOf(cmd.Context(), choice)
		if err != nil {
			return err
		}
		if output == "json" {
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			err = enc.Encode(s)
		} else if s.Running {
			s.print(cmd.OutOrStdout(), clock.RealClock{}.Now())
		}
		switch {
		case err != nil:
			return err
		case !s.Running:
			return fmt.Errorf("no svc up runs on %s: start \"svc up\", or name another with --data-dir%s", choice, sudoHint(choice.Dir))
		case len(s.Problems) == 1:
			return errors.New("1 thing is wrong")
		case len(s.Problems) > 1:
			return fmt.Errorf("%d things are wrong", len(s.Problems))
		}
		return nil
	}
	return cmd
}

// statusOf finds out what runs on a data directory.
func statusOf(ctx context.Context, choice datadir.Choice) (*clusterStatus, error) {
	s := &clusterStatus{DataDir: string(choice.Dir), ChosenBy: choice.By, Problems: []string{}}
	if err := choice.Dir.Access(); err != nil {
		return nil, err
	}
	holder, held, err := choice.Dir.Holder()
	if line := commandLine(holder.PID); err != nil || !held || line != nil && !slices.Contains(line, "up") {
		return s, err
	}
	s.Running, s.PID, s.Since = true, holder.PID, &holder.Since
	s.Memory.Up = residentMemory(holder.PID)
	s.Memory.Pods = cgroupMemory("/sys/fs/cgroup", choice.Dir.Cgroup())
	if err := s.ask(ctx, choice.Dir.AdminFile()); err != nil {
		s.Problems = append(s.Problems, "the API server does not answer: "+oneLine(err))
	}
	return s, nil
}

// ask fills in what the API server knows.
func (s *clusterStatus) ask(ctx context.Context, file string) error {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		return err
	}
	s.Server, config.Timeout, config.WarningHandlerWithContext = config.Host, statusTimeout, rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return err
	}
	s.Version = version.GitVersion
	if _, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
		s.Problems = append(s.Problems, "the API server is not ready: "+oneLine(err))
	}
	fromCache := metav1.ListOptions{ResourceVersion: "0"}
	nodes, err := client.CoreV1().Nodes().List(ctx, fromCache)
	if err != nil {
		return err
	}
	pods, err := client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, fromCache)
	if err != nil {
		return err
	}
	registrations, err := aggregator.NewForConfig(config)
	if err != nil {
		return err
	}
	services, err := registrations.ApiregistrationV1().APIServices().List(ctx, fromCache)
	if err != nil {
		return err
	}
	inPods, err := podProblems(pods.Items, sync.OnceValues(func() (map[types.UID]corev1.Event, error) { return podWarnings(ctx, client) }))
	if err != nil {
		return err
	}
	for _, problems := range [][]string{nodeProblems(nodes.Items), lackProblems(nodes.Items), inPods, serviceProblems(services.Items)} {
		s.Problems = append(s.Problems, problems...)
	}
	s.Nodes = counted{len(nodes.Items) - len(nodeProblems(nodes.Items)), len(nodes.Items)}
	s.Pods = counted{len(pods.Items) - len(inPods), len(pods.Items)}
	return nil
}

// podWarnings returns the newest Warning event of each pod, by the pod's UID.
func podWarnings(ctx context.Context, client kubernetes.Interface) (map[types.UID]corev1.Event, error) {
	events, err := client.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=Pod,type=" + corev1.EventTypeWarning, ResourceVersion: "0",
	})
	if err != nil {
		return nil, err
	}
	return newest(events.Items), nil
}

// print prints one screen.
func (s *clusterStatus) print(out io.Writer, now time.Time) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-8s"+format+"\n", append([]any{name}, args...)...)
	}
	line("svc up", "process %d, since %s (%s)", s.PID, s.Since.Format(time.DateTime), duration.HumanDuration(now.Sub(*s.Since)))
	line("data", "%s (%s)", s.DataDir, s.ChosenBy)
	if s.Version != "" {
		line("server", "%s, Kubernetes %s", s.Server, s.Version)
	}
	var memory []string
	for _, part := range []struct {
		name  string
		bytes int64
	}{{"svc up", s.Memory.Up}, {"pods", s.Memory.Pods}} {
		if part.bytes > 0 {
			memory = append(memory, fmt.Sprintf("%s %d MiB", part.name, part.bytes>>20))
		}
	}
	if len(memory) > 0 {
		line("memory", "%s", strings.Join(memory, ", "))
	}
	if s.Version != "" {
		line("nodes", "%d of %d ready", s.Nodes.Good, s.Nodes.All)
		line("pods", "%d of %d running or completed", s.Pods.Good, s.Pods.All)
	}
	if len(s.Problems) == 0 {
		fmt.Fprint(out, "\nNothing is wrong.\n")
		return
	}
	fmt.Fprint(out, "\nWrong:\n")
	for i, problem := range s.Problems {
		if i == shownProblems {
			fmt.Fprintf(out, "  and %d more; -o json prints all\n", len(s.Problems)-i)
			break
		}
		fmt.Fprintf(out, "  %s\n", problem)
	}
}

// residentMemory returns the memory of a process in bytes, or 0 if the system does not
// say (proc_pid_status(5)).
func residentMemory(pid int) int64 {
	content, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(content), "\nVmRSS:")
	var kilobytes int64
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		return 0
	}
	return kilobytes << 10
}

// cgroupMemory returns the memory of a cgroup in bytes, of version 2 or 1 as the machine
// has them mounted in a directory, or 0 if there is no such cgroup.
func cgroupMemory(mounted, name string) int64 {
	content, err := os.ReadFile(filepath.Join(mounted, name, "memory.current"))
	if errors.Is(err, fs.ErrNotExist) {
		content, err = os.ReadFile(filepath.Join(mounted, "memory", name, "memory.usage_in_bytes"))
	}
	if err != nil {
		return 0
	}
	bytes, err := strconv.ParseInt(strings.TrimSpace(string(content)), 10, 64)
	if err != nil {
		return 0
	}
	return bytes
}
