package job

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apis"
	"svc.dev/svc/internal/golden"
)

// TestScripts plays the scripts of testdata. The commands:
//
//	job SPEC             create the job, or change its spec
//	start POD...         its containers run and are ready
//	end CODE POD...      they end
//	disrupt POD...       the pod fails since its node needs the room
//	restart N POD        its container has restarted so often
//	delete POD...        somebody deletes the pod
//	gone CODE POD...     and its containers have ended
//	label POD KEY=VALUE
//	orphan POD           somebody takes its controller from the pod
//	delete-job [waits]   somebody deletes the job; its pods go first
//	quota                no pods can be created from now on
//	pass DURATION        time passes
//	look [crash=N]       the controller looks at the job; it crashes after N writes
//	crash [behind=N]     the controller crashes now; the pods that the next one
//	                     has in its cache are N changes behind
//	free                 the controller frees pods that no job counts
//	pods                 show the pods; * is the finalizer
func TestScripts(t *testing.T) {
	kinds := apis.Kinds()
	scheme := apis.NewExternalScheme(kinds)
	golden.Run(t, func(t *testing.T) golden.Handler {
		s := &script{world: newWorld(kinds, scheme)}
		s.wrote = func(what string) {
			// The events report the creation and deletion of pods.
			if what != "create" && !strings.HasPrefix(what, "delete ") {
				s.lines = append(s.lines, s.describe(what))
			}
		}
		return func(c golden.Command) string {
			s.lines = nil
			if err := s.do(c); err != nil {
				t.Fatal(err)
			}
			if len(s.invalid) > 0 {
				t.Fatalf("The API server rejects the status: %v", s.invalid)
			}
			return strings.Join(sortRuns(s.lines), "\n")
		}
	})
}

type script struct {
	*world
	lines []string
}

func (s *script) do(c golden.Command) error {
	args := c.Args
	for _, name := range args {
		if strings.HasPrefix(name, "work-") && s.pods[name] == nil {
			s.lines = append(s.lines, "there is no pod "+name)
			return nil
		}
	}
	each := func(names []string, do func(pod *corev1.Pod)) {
		for _, name := range names {
			s.update(name, do)
		}
	}
	switch c.Name {
	case "job":
		var err error
		s.lines = append(s.lines, s.setJob(func(spec *batchv1.JobSpec) { err = yaml.Unmarshal([]byte(c.Text), spec) })...)
		return err
	case "start":
		each(args, start)
	case "end", "gone":
		code, err := strconv.Atoi(args[0])
		if err != nil {
			return err
		}
		for _, name := range args[1:] {
			if c.Name == "end" {
				s.end(name, int32(code))
			} else {
				s.endPod(name, int32(code))
			}
		}
	case "disrupt":
		each(args, func(pod *corev1.Pod) {
			pod.Status.Phase = corev1.PodFailed
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue}}
		})
	case "restart":
		n, err := strconv.Atoi(args[0])
		each(args[1:], func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "main", RestartCount: int32(n)}}
		})
		return err
	case "delete":
		for _, name := range args {
			s.deletePod(name)
		}
	case "label":
		key, value, _ := strings.Cut(args[1], "=")
		each(args[:1], func(pod *corev1.Pod) { set(&pod.Labels, key, value) })
	case "orphan":
		each(args, func(pod *corev1.Pod) { pod.OwnerReferences = nil })
	case "delete-job":
		s.deleteJob(args...)
	case "quota":
		s.fail = func(what string) (error, bool) {
			if what == "create" {
				return errors.New("exceeded quota"), false
			}
			return nil, true
		}
	case "pass":
		d, err := time.ParseDuration(args[0])
		s.now = s.now.Add(d)
		return err
	case "look":
		return s.lookOnce(args)
	case "crash":
		s.restart()
		if len(args) > 0 {
			_, err := fmt.Sscanf(args[0], "behind=%d", &s.behind)
			return err
		}
	case "free":
		s.lookForStrays()
	case "pods":
		s.showPods()
	default:
		return fmt.Errorf("unknown command %q", c.Name)
	}
	return nil
}

func (s *script) lookOnce(args []string) error {
	if len(args) > 0 {
		if _, err := fmt.Sscanf(args[0], "crash=%d", &s.crash); err != nil {
			return err
		}
	}
	again, err := s.look()
	switch {
	case err != nil:
		s.lines = append(s.lines, "error: "+err.Error())
	case again > 0:
		s.lines = append(s.lines, "again in "+again.String())
	}
	return nil
}

func (s *script) showPods() {
	var all []string
	for name, pod := range s.pods {
		line := name + " " + string(pod.Status.Phase)
		if isTracked(pod) {
			line += " *"
		}
		if pod.DeletionTimestamp != nil {
			line += " deleted"
		}
		for _, a := range []string{batchv1.JobIndexFailureCountAnnotation, batchv1.JobIndexIgnoredFailureCountAnnotation} {
			if n := pod.Annotations[a]; n != "" {
				line += fmt.Sprintf(" %s=%s", strings.TrimPrefix(a, "batch.kubernetes.io/job-index-"), n)
			}
		}
		all = append(all, line)
	}
	slices.Sort(all)
	s.lines = append(s.lines, all...)
}

// describe adds to a write of the status what has been written.
func (s *script) describe(what string) string {
	if what != "status" {
		return what
	}
	st := s.job.Status
	parts := []string{fmt.Sprintf("%d active", st.Active)}
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(int(*st.Ready), "ready")
	add(int(*st.Terminating), "terminating")
	add(int(st.Succeeded), "succeeded")
	add(int(st.Failed), "failed")
	if u := st.UncountedTerminatedPods; len(u.Succeeded)+len(u.Failed) > 0 {
		parts = append(parts, fmt.Sprintf("uncounted succeeded %v failed %v", u.Succeeded, u.Failed))
	}
	if st.CompletedIndexes != "" {
		parts = append(parts, "completed indexes "+st.CompletedIndexes)
	}
	if st.FailedIndexes != nil && *st.FailedIndexes != "" {
		parts = append(parts, "failed indexes "+*st.FailedIndexes)
	}
	if st.StartTime != nil {
		parts = append(parts, "started "+st.StartTime.UTC().Format(time.TimeOnly))
	}
	if st.CompletionTime != nil {
		parts = append(parts, "completed "+st.CompletionTime.UTC().Format(time.TimeOnly))
	}
	lines := []string{"status: " + strings.Join(parts, ", ")}
	for _, c := range st.Conditions {
		lines = append(lines, fmt.Sprintf("    %s %s %s: %s", c.Type, c.Status, c.Reason, c.Message))
	}
	return strings.Join(lines, "\n")
}

// sortRuns sorts what happens at the same time: neighbours that begin with the
// same word, with the events about them.
func sortRuns(lines []string) []string {
	class := func(line string) string {
		word, rest, _ := strings.Cut(line, " ")
		for _, same := range []string{"SuccessfulCreate", "SuccessfulDelete", "untrack"} {
			if word == same || word == "event" && strings.Contains(rest, same) {
				return "at once"
			}
		}
		return line
	}
	for i := 0; i < len(lines); {
		end := i + 1
		for end < len(lines) && class(lines[end]) == class(lines[i]) {
			end++
		}
		slices.Sort(lines[i:end])
		i = end
	}
	return lines
}
