package devicetainteviction

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// script is the cluster that a script has filled.
type script struct {
	t      *testing.T
	slices []*resourcev1.ResourceSlice
	rules  []*resourcev1.DeviceTaintRule
	claims map[string]*resourcev1.ResourceClaim
	users  []user
}

func TestScripts(t *testing.T) {
	content, err := os.ReadFile("testdata/evict.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, rules, _ := strings.Cut(string(content), "\n== ")
	for part := range strings.SplitSeq(rules, "\n== ") {
		name, lines, _ := strings.Cut(part, "\n")
		t.Run(name, func(t *testing.T) {
			s := &script{t: t, claims: map[string]*resourcev1.ResourceClaim{}}
			got := ""
			for line := range strings.SplitSeq(strings.TrimSpace(lines), "\n") {
				if want, ok := strings.CutPrefix(line, "--"); ok {
					if got != strings.TrimSpace(want) {
						t.Errorf("got %q, want %q", got, strings.TrimSpace(want))
					}
					continue
				}
				got = s.do(strings.Fields(line))
			}
		})
	}
}

// do carries out a line, and returns the answer if it asks for one.
func (s *script) do(words []string) string {
	if len(words) < 2 {
		return ""
	}
	verb, name, words := words[0], words[1], words[2:]
	switch verb {
	case "slice":
		s.slices = append(s.slices, s.slice(name, words))
	case "rule":
		s.rules = append(s.rules, s.rule(name, words))
	case "claim":
		s.claims[name] = s.claim(name, words)
	case "evict":
		pod := s.pod(name, words)
		s.users = append(s.users, user{pod, s.claims})
		d := evict(pod, s.claims, newTaints(s.rules, s.slices))
		if d == nil {
			return "never"
		}
		text := strconv.FormatInt(d.at.Unix(), 10)
		for i, rule := range d.rules {
			text += map[bool]string{true: " because of ", false: ", "}[i == 0] + rule.Name
		}
		return text
	case "status":
		evicted := 0
		if len(words) > 0 {
			evicted = s.number(strings.TrimPrefix(words[0], "evicted="))
		}
		i := slices.IndexFunc(s.rules, func(r *resourcev1.DeviceTaintRule) bool { return r.Name == name })
		var claims []*resourcev1.ResourceClaim
		for _, c := range s.claims {
			claims = append(claims, c)
		}
		c := condition(s.rules[i], count(s.rules[i], newTaints(s.rules, s.slices), claims, s.users), evicted)
		return strings.TrimSpace(fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message))
	default:
		s.t.Fatalf("unknown line %s", verb)
	}
	return ""
}

func (s *script) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// taint reads KEY:EFFECT@TIME.
func (s *script) taint(text string) resourcev1.DeviceTaint {
	text, at, _ := strings.Cut(text, "@")
	key, effect, _ := strings.Cut(text, ":")
	return resourcev1.DeviceTaint{Key: key, Effect: resourcev1.DeviceTaintEffect(effect), TimeAdded: new(metav1.Unix(int64(s.number(at)), 0))}
}

func (s *script) slice(name string, words []string) *resourcev1.ResourceSlice {
	slice := &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{Driver: "d", Pool: resourcev1.ResourcePool{Name: name}}}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		if key == "generation" {
			slice.Spec.Pool.Generation = int64(s.number(value))
			continue
		}
		device := resourcev1.Device{Name: key}
		for text := range strings.SplitSeq(value, ",") {
			if text != "" {
				device.Taints = append(device.Taints, s.taint(text))
			}
		}
		slice.Spec.Devices = append(slice.Spec.Devices, device)
	}
	return slice
}

func (s *script) rule(name string, words []string) *resourcev1.DeviceTaintRule {
	rule := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	rule.Spec.Taint, rule.Spec.DeviceSelector = s.taint(words[0]), &resourcev1.DeviceTaintSelector{}
	for _, word := range words[1:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "pool":
			rule.Spec.DeviceSelector.Pool = &value
		case "device":
			rule.Spec.DeviceSelector.Device = &value
		}
	}
	return rule
}

func (s *script) claim(name string, words []string) *resourcev1.ResourceClaim {
	claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	var tolerations []resourcev1.DeviceToleration
	var results []resourcev1.DeviceRequestAllocationResult
	for _, word := range words {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "device":
			pool, device, _ := strings.Cut(value, "/")
			results = append(results, resourcev1.DeviceRequestAllocationResult{Driver: "d", Pool: pool, Device: device})
		case "tolerates":
			parts := strings.Split(value, ":")
			toleration := resourcev1.DeviceToleration{Key: parts[0], Operator: resourcev1.DeviceTolerationOpExists, Effect: resourcev1.DeviceTaintEffect(parts[1])}
			if len(parts) > 2 {
				toleration.TolerationSeconds = new(int64(s.number(parts[2])))
			}
			tolerations = append(tolerations, toleration)
		case "for":
			claim.Status.ReservedFor = append(claim.Status.ReservedFor, resourcev1.ResourceClaimConsumerReference{Resource: "pods", Name: value, UID: types.UID(value)})
		case "owner":
			claim.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: value, UID: types.UID(value), Controller: new(true)}}
		default:
			s.t.Fatalf("unknown word %s", word)
		}
	}
	for i := range results {
		results[i].Tolerations = tolerations
	}
	if len(results) > 0 {
		claim.Status.Allocation = &resourcev1.AllocationResult{Devices: resourcev1.DeviceAllocationResult{Results: results}}
	}
	return claim
}

func (s *script) pod(name string, words []string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "n"}}
	for _, word := range words {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "claims":
			for claim := range strings.SplitSeq(value, ",") {
				pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: claim, ResourceClaimName: &claim})
			}
		case "made":
			pod.Spec.ResourceClaims = append(pod.Spec.ResourceClaims, corev1.PodResourceClaim{Name: value, ResourceClaimTemplateName: &value})
			pod.Status.ResourceClaimStatuses = append(pod.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: value, ResourceClaimName: &value})
		case "node":
			pod.Spec.NodeName = value
		case "phase":
			pod.Status.Phase = corev1.PodPhase(value)
		case "namespace":
			pod.Namespace = value
		case "deleting":
			pod.DeletionTimestamp = new(metav1.Now())
		default:
			s.t.Fatalf("unknown word %s", word)
		}
	}
	return pod
}

func TestConditionOfARuleStaysForAWhile(t *testing.T) {
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0) }
	rule := &resourcev1.DeviceTaintRule{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
	if got := wait(rule, at(0)); got != 0 {
		t.Errorf("without a condition: %v", got)
	}
	c := metav1.Condition{Type: resourcev1.DeviceTaintConditionEvictionInProgress, Status: metav1.ConditionTrue, Message: "1", ObservedGeneration: 1}
	if !set(rule, c, at(100)) || set(rule, c, at(103)) {
		t.Error("the same condition is a change, or the first one is not")
	}
	if got := wait(rule, at(103)); got != 7*time.Second {
		t.Errorf("after 3 seconds: %v", got)
	}
	if got := wait(rule, at(120)); got != 0 {
		t.Errorf("after 20 seconds: %v", got)
	}
	c.Message = "2"
	if !set(rule, c, at(120)) || !rule.Status.Conditions[0].LastTransitionTime.Time.Equal(at(120)) {
		t.Errorf("another message: %+v", rule.Status.Conditions)
	}
	rule.Generation = 2
	if got := wait(rule, at(121)); got != 0 {
		t.Errorf("of a changed rule: %v", got)
	}
}
