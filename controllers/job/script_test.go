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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apis"
	"svc.dev/svc/controllers/job/decide"
	"svc.dev/svc/internal/golden"
)

// TestScripts plays the scripts of testdata. The commands:
//
//	job SPEC             create the job, or change its spec
//	start POD...         the containers of pods run and are ready
//	end CODE POD...      they terminate with the exit code
//	disrupt POD...       pods fail with the condition DisruptionTarget
//	restart N POD        the container of a pod has restarted N times
//	delete POD...        a user deletes pods
//	gone CODE POD...     the containers of deleted pods have terminated
//	label POD KEY=VALUE  a user sets a label of a pod
//	orphan POD           a user removes the controller reference of a pod
//	delete-job [FINALIZER...]  a user deletes the job
//	quota                the API server rejects new pods from now on
//	pass DURATION        the clock advances
//	sync [crash=N]       the controller syncs the job; it crashes after N writes
//	crash [behind=N]     the controller restarts; its cache of pods lags N changes
//	                     behind
//	free                 the controller removes the finalizers of orphan pods
//	pods                 prints the pods; * is the finalizer
func TestScripts(t *testing.T) {
	kinds := apis.Kinds()
	scheme := apis.NewExternalScheme(kinds)
	golden.Run(t, func(t *testing.T) golden.Handler {
		s := &script{apiServer: newAPIServer(kinds, scheme)}
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
	*apiServer
	lines []string
}

func (s *script) do(c golden.Command) error {
	args := c.Args
	if name, missing := s.missingPod(args); missing {
		s.lines = append(s.lines, "no such pod: "+name)
		return nil
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
		each(args[:1], func(pod *corev1.Pod) { metav1.SetMetaDataLabel(&pod.ObjectMeta, key, value) })
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
	case "sync":
		return s.syncOnce(args)
	case "crash":
		s.restart()
		if len(args) > 0 {
			_, err := fmt.Sscanf(args[0], "behind=%d", &s.behind)
			return err
		}
	case "free":
		s.syncOrphans()
	case "pods":
		s.showPods()
	default:
		return fmt.Errorf("unknown command %q", c.Name)
	}
	return nil
}

// missingPod returns the first argument that names a pod that does not exist.
func (s *script) missingPod(args []string) (name string, missing bool) {
	for _, name := range args {
		if strings.HasPrefix(name, "work-") && s.pods[name] == nil {
			return name, true
		}
	}
	return "", false
}

func (s *script) syncOnce(args []string) error {
	if len(args) > 0 {
		if _, err := fmt.Sscanf(args[0], "crash=%d", &s.crash); err != nil {
			return err
		}
	}
	again, err := s.sync()
	switch {
	case err != nil:
		s.lines = append(s.lines, "error: "+err.Error())
	case again > 0:
		s.lines = append(s.lines, "requeue after "+again.String())
	}
	return nil
}

func (s *script) showPods() {
	var all []string
	for name, pod := range s.pods {
		line := name + " " + string(pod.Status.Phase)
		if decide.IsTracked(pod) {
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

// describe returns a write, with the contents of a status.
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

// sortRuns sorts lines whose order is not defined: adjacent writes of the same kind
// and the events about them.
func sortRuns(lines []string) []string {
	class := func(line string) string {
		word, rest, _ := strings.Cut(line, " ")
		for _, same := range []string{"SuccessfulCreate", "SuccessfulDelete", "untrack"} {
			if word == same || word == "event" && strings.Contains(rest, same) {
				return "concurrent"
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
