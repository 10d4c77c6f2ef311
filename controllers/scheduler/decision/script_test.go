package decision

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/internal/golden"
)

// TestScripts runs the scripts of testdata. Each case is a rule
// and begins with an empty cluster; testdata/notation.txt is the manual.
func TestScripts(t *testing.T) {
	golden.Run(t, func(*testing.T) golden.Handler {
		s := NewSnapshot()
		return func(c golden.Command) string { return s.run(c.Name, c.Text) }
	})
}

// run executes a command of a script.
func (s *Snapshot) run(command, rest string) string {
	switch command {
	case "node":
		s.SetNode(parseNode(rest))
	case "pod":
		s.SetPod(parsePod(rest))
	case "namespace":
		name, words := fields(rest)
		s.SetNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: parseLabels(words[0])}})
	case "service":
		name, words := fields(rest)
		s.SetService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: corev1.ServiceSpec{Selector: parseLabels(words[0])}})
	case "claim":
		s.SetClaim(parseClaim(rest))
	case "volume":
		s.SetVolume(parseVolume(rest))
	case "class":
		s.SetClass(parseClass(rest))
	case "driver":
		s.SetDriver(parseDriver(rest))
	case "capacity":
		s.SetCapacity(parseCapacity(rest))
	case "limits":
		s.SetCSINode(parseLimits(rest))
	case "attachment":
		s.SetAttachment(parseAttachment(rest))
	case "remove":
		s.remove(rest)
	case "extender":
		s.SetExtenders(append(s.extenders, parseExtender(rest))...)
	case "deviceclass":
		s.SetDeviceClass(parseDeviceClass(rest))
	case "devices":
		s.SetResourceSlice(parseDevices(rest))
	case "taintrule":
		s.SetDeviceTaintRule(parseTaintRule(rest))
	case "resourceclaim":
		s.SetResourceClaim(parseResourceClaim(rest))
	case "devicetimeout":
		p := *s.first
		p.DeviceBindTimeout = must(time.ParseDuration(rest))
		s.SetProfiles(&p)
	case "extendedresources":
		p := *s.first
		p.ExtendedResources = true
		s.SetProfiles(&p)
	case "assume":
		pod := parsePod(rest)
		s.AssumeDevices(pod, s.Decide(pod, nil).Devices)
	case "written":
		s.DevicesWritten("default", rest, "2")
	case "forget":
		s.ForgetDevices(parsePod(rest).UID)
	case "budget":
		s.SetBudget(parseBudget(rest))
	case "group":
		if s.groups == nil {
			s.ConsiderGroups()
		}
		s.SetGroup(parseGroup(rest))
	case "nominate":
		pod := parsePod(rest)
		s.Nominate(pod, pod.Status.NominatedNodeName)
	case "preempted":
		s.Preempted(parsePod(rest).UID, true)
	case "decide":
		return s.answer(parsePod(rest))
	case "preempt":
		return s.preempt(parsePod(rest))
	case "fits":
		return s.fits(parsePod(rest))
	case "score":
		name, rest, _ := strings.Cut(rest, " ")
		return s.scoreOf(name, parsePod(rest))
	default:
		panic("unknown command " + command)
	}
	return ""
}

// remove executes the command of this name.
func (s *Snapshot) remove(rest string) {
	kind, rest, _ := strings.Cut(rest, " ")
	switch kind {
	case "node":
		s.RemoveNode(rest)
	case "pod":
		s.RemovePod(parsePod(rest))
	case "attachment":
		s.RemoveAttachment(parseAttachment(rest))
	case "taintrule":
		s.RemoveDeviceTaintRule(rest)
	case "deviceclass":
		s.RemoveDeviceClass(rest)
	case "resourceclaim":
		s.RemoveResourceClaim("default", rest)
	case "group":
		s.RemoveGroup("default", rest)
	default:
		panic("unknown kind " + kind)
	}
}

// answer returns the best nodes with the claims to bind, or the reasons why no node
// fits.
func (s *Snapshot) answer(pod *corev1.Pod) string {
	ties := 1
	best := s.Decide(pod, func(n int) int { ties = n; return 0 })
	if best.Err != nil {
		return best.Err.Error()
	}
	if best.Node == "" {
		if best.Release != "" {
			return best.Message() + " release " + best.Release
		}
		return best.Message()
	}
	var names []string
	for i := range ties {
		names = append(names, s.Decide(pod, func(int) int { return i }).Node)
	}
	slices.Sort(names)
	answer := strings.Join(names, " or ")
	for _, c := range best.Claims {
		if c.Volume == "" {
			answer += fmt.Sprintf(", provision %s", c.Claim)
		} else {
			answer += fmt.Sprintf(", bind %s to %s", c.Claim, c.Volume)
		}
	}
	for _, d := range best.Devices {
		if d.Create != nil {
			answer += ", create"
			for _, r := range d.Create.Spec.Devices.Requests {
				answer += fmt.Sprintf(" %s=%d*%s", r.Name, r.Exactly.Count, r.Exactly.DeviceClassName)
			}
		}
		answer += ", reserve " + d.Claim
		if d.Allocation != nil {
			answer += " with"
			for _, r := range d.Allocation.Devices.Results {
				answer += " " + r.Device
			}
		}
	}
	if status := best.ExtendedStatus; status != nil && status.PodExtendedResourceClaimStatus == nil {
		answer += ", name no claim"
	} else if status != nil {
		answer += ", name " + status.ResourceClaimName + " for"
		for _, m := range status.RequestMappings {
			answer += fmt.Sprintf(" %s.%s=%s", m.ContainerName, m.ResourceName, m.RequestName)
		}
	}
	if best.Wait != nil {
		answer += ", wait for " + best.Wait.Claim
	}
	return answer
}

// preempt returns the node to which a pod is nominated with the victims, or the reasons
// why there is none.
func (s *Snapshot) preempt(pod *corev1.Pod) string {
	d := s.Decide(pod, nil)
	if d.Node != "" {
		return "fits " + d.Node
	}
	p := s.Preempt(pod, &d, nil)
	answer := p.Message
	if p.Node != "" {
		answer = p.Node + " without"
	}
	for _, victim := range p.Victims {
		answer += " " + victim.Name
	}
	for _, other := range p.Displaced {
		answer += ", displaces " + other.Name
	}
	if p.Clear && s.Nominated(pod.UID) != "" {
		answer += " No longer nominated."
	}
	return answer
}

// fits returns the nodes that pass the filters, or the reasons why none does.
func (s *Snapshot) fits(pod *corev1.Pod) string {
	var names []string
	for _, n := range s.pass(newRequest(pod, s.profileOf(pod))) {
		names = append(names, n.name)
	}
	if d := s.Decide(pod, nil); (d.Node == "") != (len(names) == 0) {
		return fmt.Sprintf("decided on %q, though %v pass", d.Node, names)
	} else if d.Node == "" {
		return d.Message()
	}
	return strings.Join(names, " ")
}

// pass returns the nodes that pass the filters, sorted by name.
func (s *Snapshot) pass(r *request) []*node {
	p := s.prepare(r, nil)
	if p.podReason != "" {
		return nil
	}
	all := s.nodes.list()
	if p.only != nil {
		all = p.only
	}
	var nodes []*node
	for _, n := range all {
		if failed, _ := s.rejects(n, &p, r, nil); failed < 0 {
			nodes = append(nodes, n)
		}
	}
	slices.SortFunc(nodes, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	return nodes
}

// scoreOf returns the value of one score, or of "all" with their weights, for each
// node that passes the filters.
func (s *Snapshot) scoreOf(name string, pod *corev1.Pod) string {
	r := newRequest(pod, s.profileOf(pod))
	nodes := s.pass(r)
	if len(nodes) == 0 {
		return "no node"
	}
	values := make([]int64, len(nodes))
	if name == "all" {
		values = s.rank(r, nodes)
	} else {
		i := slices.IndexFunc(scores, func(s score) bool { return s.name == name })
		if !scores[i].apply(s, r, nodes, values) {
			return "no preference"
		}
	}
	var words []string
	for i, n := range nodes {
		words = append(words, fmt.Sprintf("%s=%d", n.name, values[i]))
	}
	return strings.Join(words, " ")
}
