package decision

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	extenderv1 "k8s.io/kube-scheduler/extender/v1"
)

// scripted is an extender that answers as a script says.
type scripted struct {
	// only, if set, is the name of the pods that it is asked about.
	only                 string
	rejects, never       map[string]string
	silent               sets.Set[string]
	prefers              map[string]int64
	keeps                sets.Set[string]
	victims              map[string]string
	failsToFilter, fails string
}

func (e *scripted) Extends(pod *corev1.Pod) bool { return e.only == "" || e.only == pod.Name }

func (e *scripted) Filter(_ *corev1.Pod, nodes []*corev1.Node) (Filtered, error) {
	if e.failsToFilter != "" {
		return Filtered{}, errors.New(e.failsToFilter)
	}
	f := Filtered{Accepted: sets.New[string](), Rejected: e.rejects, Unresolvable: e.never}
	for _, n := range nodes {
		if e.rejects[n.Name] == "" && e.never[n.Name] == "" && !e.silent.Has(n.Name) {
			f.Accepted.Insert(n.Name)
		}
	}
	return f, nil
}

func (e *scripted) Prioritize(*corev1.Pod, []*corev1.Node) map[string]int64 { return e.prefers }

func (e *scripted) Preempt(_ *corev1.Pod, candidates map[string]*extenderv1.Victims) (map[string]*extenderv1.MetaVictims, error) {
	if e.fails != "" {
		return nil, errors.New(e.fails)
	}
	chosen := map[string]*extenderv1.MetaVictims{}
	for node, victims := range candidates {
		if e.keeps.Has(node) {
			continue
		}
		chosen[node] = &extenderv1.MetaVictims{NumPDBViolations: victims.NumPDBViolations}
		for _, p := range victims.Pods {
			chosen[node].Pods = append(chosen[node].Pods, &extenderv1.MetaPod{UID: string(p.UID)})
		}
		if e.victims[node] != "" {
			chosen[node].Pods = []*extenderv1.MetaPod{{UID: string(parsePod(e.victims[node]).UID)}}
		}
	}
	return chosen, nil
}

// parseExtender parses words such as rejects=a:reason.
func parseExtender(text string) *scripted {
	e := &scripted{rejects: map[string]string{}, never: map[string]string{}, silent: sets.New[string](), prefers: map[string]int64{}, keeps: sets.New[string](), victims: map[string]string{}}
	for word := range strings.FieldsSeq(text) {
		key, value, _ := strings.Cut(word, "=")
		node, rest, _ := strings.Cut(value, ":")
		rest = strings.ReplaceAll(rest, "-", " ")
		switch key {
		case "only":
			e.only = value
		case "rejects":
			e.rejects[node] = rest
		case "never":
			e.never[node] = rest
		case "silent":
			e.silent.Insert(node)
		case "prefers":
			points, err := strconv.ParseInt(rest, 10, 64)
			if err != nil {
				panic(err)
			}
			e.prefers[node] = points
		case "keeps":
			e.keeps.Insert(node)
		case "victim":
			e.victims[node] = strings.ReplaceAll(rest, " ", "-")
		case "fails":
			e.failsToFilter = value
		case "fails-to-preempt":
			e.fails = value
		default:
			panic("unknown word " + word)
		}
	}
	return e
}

func TestPodsThatAnExtenderRejectsAreWokenByAnyEvent(t *testing.T) {
	s := NewSnapshot()
	s.SetNode(parseNode("a"))
	s.SetExtenders(parseExtender("rejects=a:busy"))
	d := s.Decide(parsePod("web"), nil)
	if d.WokenBy != anyEvent || !slices.Equal(d.Filters, []string{"Extender"}) {
		t.Errorf("got %v, %v", d.WokenBy, d.Filters)
	}
	s.SetNode(parseNode("a cordoned"))
	if d := s.Decide(parsePod("web"), nil); d.WokenBy != NodeAdded|NodeTaints {
		t.Errorf("a pod that no extender was asked about is woken by %v", d.WokenBy)
	}
}

func TestExtenderIsAskedAboutFeasibleNodesOnly(t *testing.T) {
	s := NewSnapshot()
	for _, node := range []string{"c", "a", "b cordoned"} {
		s.SetNode(parseNode(node))
	}
	asked := &recorder{}
	s.SetExtenders(asked)
	if d := s.Decide(parsePod("web"), nil); d.Node == "" || d.Err != nil {
		t.Fatalf("got %+v", d)
	}
	if got := fmt.Sprint(asked.nodes); got != "[[a c] [a c]]" {
		t.Errorf("asked about %s", got)
	}
}

// recorder is an extender that accepts all nodes, and records which it is asked about.
type recorder struct{ nodes [][]string }

func (r *recorder) Extends(*corev1.Pod) bool { return true }

func (r *recorder) record(nodes []*corev1.Node) []string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	r.nodes = append(r.nodes, names)
	return names
}

func (r *recorder) Filter(_ *corev1.Pod, nodes []*corev1.Node) (Filtered, error) {
	return Filtered{Accepted: sets.New(r.record(nodes)...)}, nil
}

func (r *recorder) Prioritize(_ *corev1.Pod, nodes []*corev1.Node) map[string]int64 {
	r.record(nodes)
	return nil
}

func (r *recorder) Preempt(_ *corev1.Pod, candidates map[string]*extenderv1.Victims) (map[string]*extenderv1.MetaVictims, error) {
	r.nodes = append(r.nodes, slices.Sorted(maps.Keys(candidates)))
	return nil, nil
}
