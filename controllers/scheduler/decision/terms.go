package decision

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// term is a parsed pod affinity term: it selects pods and has a topology key.
type term struct {
	// namespaces are those of the pods, sorted, beside those that
	// namespaceSelector selects, which is nil if it selects none.
	namespaces        []string
	namespaceSelector labels.Selector
	selector          labels.Selector
	topologyKey       string

	// selects identifies the set of pods that the term selects.
	selects string
}

// newTerm parses a term of a pod in a namespace.
func newTerm(namespace string, t *corev1.PodAffinityTerm) (*term, error) {
	selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil {
		return nil, err
	}
	parsed := &term{selector: selector, topologyKey: t.TopologyKey, namespaces: t.Namespaces}
	if t.NamespaceSelector != nil {
		if parsed.namespaceSelector, err = metav1.LabelSelectorAsSelector(t.NamespaceSelector); err != nil {
			return nil, err
		}
	} else if len(t.Namespaces) == 0 {
		parsed.namespaces = []string{namespace}
	}
	parsed.init()
	return parsed, nil
}

// podsIn is the term that selects pods of one namespace.
func podsIn(namespace string, selector labels.Selector) *term {
	t := &term{namespaces: []string{namespace}, selector: selector}
	t.init()
	return t
}

func (t *term) init() {
	t.namespaces = slices.Compact(slices.Sorted(slices.Values(t.namespaces)))
	t.selects = strings.Join(t.namespaces, ",") + "/" + describe(t.selector)
	if t.namespaceSelector != nil {
		t.selects += "@" + describe(t.namespaceSelector)
	}
}

// describe is like String, but distinguishes the selectors of nothing and everything.
func describe(s labels.Selector) string {
	if _, selectable := s.Requirements(); !selectable {
		return "!"
	}
	return s.String()
}

// matches reports whether the term selects pods of a namespace with some labels.
func (t *term) matches(s *Snapshot, namespace string, set labels.Set) bool {
	if !slices.Contains(t.namespaces, namespace) &&
		(t.namespaceSelector == nil || !t.namespaceSelector.Matches(labels.Set(s.namespaces[namespace]))) {
		return false
	}
	return t.selector.Matches(set)
}

// podTerms are the affinity terms of a pod.
type podTerms struct {
	affinity, antiAffinity []*term // required
	preferred              []weightedTerm
}

// weightedTerm is a preferred term; its weight is negative for anti-affinity.
type weightedTerm struct {
	*term
	weight int64
}

// newPodTerms parses the affinity terms of a pod.
func newPodTerms(pod *corev1.Pod) (podTerms, error) {
	var terms podTerms
	affinity := pod.Spec.Affinity
	if affinity == nil {
		return terms, nil
	}
	var failed error
	parse := func(t *corev1.PodAffinityTerm) *term {
		parsed, err := newTerm(pod.Namespace, t)
		if err != nil && failed == nil {
			failed = fmt.Errorf("parsing pod: %w", err)
		}
		return parsed
	}
	prefer := func(preferred []corev1.WeightedPodAffinityTerm, sign int64) {
		for i := range preferred {
			terms.preferred = append(terms.preferred, weightedTerm{parse(&preferred[i].PodAffinityTerm), sign * int64(preferred[i].Weight)})
		}
	}
	if a := affinity.PodAffinity; a != nil {
		for i := range a.RequiredDuringSchedulingIgnoredDuringExecution {
			terms.affinity = append(terms.affinity, parse(&a.RequiredDuringSchedulingIgnoredDuringExecution[i]))
		}
		prefer(a.PreferredDuringSchedulingIgnoredDuringExecution, 1)
	}
	if a := affinity.PodAntiAffinity; a != nil {
		for i := range a.RequiredDuringSchedulingIgnoredDuringExecution {
			terms.antiAffinity = append(terms.antiAffinity, parse(&a.RequiredDuringSchedulingIgnoredDuringExecution[i]))
		}
		prefer(a.PreferredDuringSchedulingIgnoredDuringExecution, -1)
	}
	if failed != nil {
		return podTerms{}, failed
	}
	return terms, nil
}

// boundTerm is an affinity term of pods that have a node, with the count of these pods.
// Pods with the same term share one.
type boundTerm struct {
	podCount
	*term
	// forbids is set for required anti-affinity: pods that match are rejected in the
	// domains of the term's pods.
	forbids bool
	// required is set for required affinity: a pod that matches gets the profile's
	// weight for each of the term's pods in the domain.
	required bool
	// weight is that of preferred affinity, negative for anti-affinity, and else 0.
	weight int64

	pods int
	key  string
}

// boundTerms are the affinity terms of pods that have a node.
type boundTerms struct {
	byKey map[string]*boundTerm
	// byNamespace are those that select pods of these namespaces, and selecting
	// those that select namespaces by labels.
	byNamespace map[string][]*boundTerm
	selecting   []*boundTerm
	// version changes with the set of terms and with what they match.
	version uint64
}

// addTerms adds the terms of a pod, and returns them as bound terms.
func (s *Snapshot) addTerms(terms podTerms) []*boundTerm {
	var bound []*boundTerm
	add := func(t *term, forbids, required bool, weight int64) {
		key := strconv.FormatInt(weight, 10) + strconv.FormatBool(required) + " " + t.topologyKey + " " + t.selects
		h := s.boundTerms.byKey[key]
		if h == nil {
			h = &boundTerm{term: t, forbids: forbids, required: required, weight: weight, key: key}
			s.boundTerms.byKey[key] = h
			s.boundTerms.version++
			for _, namespace := range t.namespaces {
				s.boundTerms.byNamespace[namespace] = append(s.boundTerms.byNamespace[namespace], h)
			}
			if t.namespaceSelector != nil {
				s.boundTerms.selecting = append(s.boundTerms.selecting, h)
			}
		}
		h.pods++
		bound = append(bound, h)
	}
	for _, t := range terms.antiAffinity {
		add(t, true, false, 0)
	}
	for _, t := range terms.affinity {
		add(t, false, true, 0)
	}
	for _, t := range terms.preferred {
		if t.weight != 0 {
			add(t.term, false, false, t.weight)
		}
	}
	return bound
}

// removeTerms removes one pod from each of the terms, and terms without pods.
func (s *Snapshot) removeTerms(terms []*boundTerm) {
	for _, h := range terms {
		if h.pods--; h.pods > 0 {
			continue
		}
		is := func(other *boundTerm) bool { return other == h }
		delete(s.boundTerms.byKey, h.key)
		s.boundTerms.version++
		for _, namespace := range h.namespaces {
			if list := slices.DeleteFunc(s.boundTerms.byNamespace[namespace], is); len(list) > 0 {
				s.boundTerms.byNamespace[namespace] = list
			} else {
				delete(s.boundTerms.byNamespace, namespace)
			}
		}
		if h.namespaceSelector != nil {
			s.boundTerms.selecting = slices.DeleteFunc(s.boundTerms.selecting, is)
		}
	}
}

// boundTermsMatching returns the bound terms that match a pod.
func (s *Snapshot) boundTermsMatching(namespace string, set map[string]string) []*boundTerm {
	if len(s.boundTerms.byNamespace[namespace]) == 0 && len(s.boundTerms.selecting) == 0 {
		return nil
	}
	// The pods of a class share the result.
	known := s.classes[namespace][classKey(set, false)]
	if known != nil && known.matchedVersion == s.boundTerms.version {
		return known.matched
	}
	var matched []*boundTerm
	for _, h := range s.boundTerms.byNamespace[namespace] {
		if h.matches(s, namespace, set) {
			matched = append(matched, h)
		}
	}
	for _, h := range s.boundTerms.selecting {
		if !slices.Contains(h.namespaces, namespace) && h.matches(s, namespace, set) {
			matched = append(matched, h)
		}
	}
	if known != nil {
		known.matched, known.matchedVersion = matched, s.boundTerms.version
	}
	return matched
}
