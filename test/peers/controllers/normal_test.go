package controllers

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/test/peers/difference"
)

// names are the names under which the objects of a scenario are compared. What a
// controller names with a random suffix or a hash is named after its owner and by the
// order of creation: web~1 is the first replica set of web, web~1~2 its second pod.
type names struct {
	of map[types.UID]string
	// anonymous are the pods and slices of which any may stand for another of the same
	// owner: of several that are equal a controller deletes any. They are compared by what
	// they are.
	anonymous map[types.UID]string
	replacer  *strings.Replacer
}

// hashLabels are labels whose values are hashes.
var hashLabels = []string{"pod-template-hash", "controller-revision-hash", "controller.kubernetes.io/hash"}

// namesIn returns the names of all objects of a scenario.
func namesIn(place string, p *record) names {
	all := slices.SortedFunc(maps.Values(p.seen), func(a, b *seen) int { return cmp.Compare(a.revision, b.revision) })
	n := names{of: map[types.UID]string{}, anonymous: map[types.UID]string{}}
	text := map[string]string{place: "PLACE"}
	counts := map[string]int{}
	for _, s := range all {
		o := s.object
		if o.GetKind() == "Event" {
			continue
		}
		name := o.GetName()
		if base := generatedFrom(o); base != "" {
			if owner := metav1.GetControllerOf(o); owner != nil && n.of[owner.UID] != "" {
				base = strings.Replace(base, owner.Name, n.of[owner.UID], 1)
				if owner.Kind == "DaemonSet" && o.GetKind() == "Pod" {
					base += "@" + nodeOf(o)
				}
			}
			key := o.GetKind() + " " + base
			counts[key]++
			base = strings.Replace(base, place, "PLACE", 1)
			name = fmt.Sprintf("%s~%d", base, counts[key])
			text[o.GetName()] = name
			if kind := o.GetKind(); kind == "Pod" || kind == "EndpointSlice" {
				n.anonymous[o.GetUID()] = base + "~*"
				text[o.GetName()] = base + "~*"
			}
		}
		name = strings.Replace(name, place, "PLACE", 1)
		n.of[o.GetUID()] = name
		text[string(o.GetUID())] = "UID of " + name
		for _, label := range hashLabels {
			hash := o.GetLabels()[label]
			if kind := o.GetKind(); hash != "" && (kind == "ReplicaSet" || kind == "ControllerRevision") {
				text[hash] = "HASH of " + name
			}
		}
	}
	var pairs []string
	for _, from := range slices.SortedFunc(maps.Keys(text), func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) }) {
		pairs = append(pairs, from, text[from])
	}
	n.replacer = strings.NewReplacer(pairs...)
	return n
}

// nodeOf returns the node that the affinity of a daemon set's pod names.
func nodeOf(o *unstructured.Unstructured) string {
	terms, _, _ := unstructured.NestedSlice(o.Object, "spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
	for _, term := range terms {
		fields, _, _ := unstructured.NestedSlice(term.(map[string]any), "matchFields")
		for _, f := range fields {
			if values, _, _ := unstructured.NestedStringSlice(f.(map[string]any), "values"); len(values) > 0 {
				return values[0]
			}
		}
	}
	return ""
}

// generatedFrom returns what the name of an object begins with, if the rest is random, a
// hash or a time.
func generatedFrom(o *unstructured.Unstructured) string {
	owner := metav1.GetControllerOf(o)
	switch prefix := o.GetGenerateName(); {
	case owner != nil && owner.Kind == "StatefulSet" && o.GetKind() != "ControllerRevision":
		return ""
	case prefix != "":
		return strings.TrimSuffix(prefix, "-")
	case owner == nil:
		return ""
	case o.GetKind() == "ReplicaSet", o.GetKind() == "ControllerRevision", o.GetKind() == "Job":
		return owner.Name
	default:
		return ""
	}
}

var (
	times     = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	clusterIP = regexp.MustCompile(`10\.96\.\d+\.\d+`)
	pem       = regexp.MustCompile(`(?s)-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----\n*`)
	refused   = regexp.MustCompile(`(pods "[a-z0-9~-]*-)[a-z0-9]{5}(" is forbidden)`)
	seconds   = regexp.MustCompile(`\b\d+(\.\d+)?(ms|µs|s)\b`)
)

func (n names) text(s string) string {
	s = n.replacer.Replace(s)
	s = refused.ReplaceAllString(s, "$1*$2")
	s = pem.ReplaceAllString(s, "CERTIFICATE")
	s = times.ReplaceAllString(s, "TIME")
	return clusterIP.ReplaceAllString(s, "CLUSTERIP")
}

func (n names) value(v any) any {
	switch v := v.(type) {
	case string:
		return n.text(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = n.value(v[i])
		}
		return list
	case map[string]any:
		object := make(map[string]any, len(v))
		for key := range v {
			object[n.text(key)] = n.value(v[key])
		}
		return object
	default:
		return v
	}
}

// arbitrary are fields that differ between any two clusters, and those that were asserted
// by the scripts.
var arbitrary = [][]string{
	{"metadata", "uid"}, {"metadata", "resourceVersion"}, {"metadata", "managedFields"}, {"metadata", "creationTimestamp"}, {"metadata", "namespace"},
}

// snapshot returns the fields of the objects of a scenario, by kind and name.
func snapshot(place string, p *record) (map[string]difference.Fields, error) {
	n := namesIn(place, p)
	all := map[string]difference.Fields{}
	anonymous := map[string][]difference.Fields{}
	for _, o := range p.live {
		if o.GetKind() == "Event" {
			continue
		}
		content := o.DeepCopy().Object
		for _, path := range arbitrary {
			unstructured.RemoveNestedField(content, path...)
		}
		if list, ok := content["endpoints"].([]any); ok {
			// A slice is a set of endpoints.
			slices.SortFunc(list, func(a, b any) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		}
		fields, err := difference.Of(n.value(content), neutral)
		if err != nil {
			return nil, err
		}
		if name := n.anonymous[o.GetUID()]; name != "" {
			for _, path := range []string{"status.podIP", "status.podIPs[0].ip"} {
				if fields[path] != "" {
					fields[path] = "IP"
				}
			}
			anonymous[o.GetKind()+" "+name] = append(anonymous[o.GetKind()+" "+name], fields)
			continue
		}
		all[o.GetKind()+" "+n.of[o.GetUID()]] = fields
	}
	for name, list := range anonymous {
		slices.SortFunc(list, func(a, b difference.Fields) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for i, fields := range list {
			all[fmt.Sprintf("%s %d of %d", name, i+1, len(list))] = fields
		}
	}
	return all, nil
}

// neutral masks what a server chooses at random.
func neutral(path, text string) string {
	if strings.HasSuffix(path, ".nodePort") || path == "spec.claimRef.resourceVersion" || path == "status.resourceVersion" || path == "data.token" || path == "data[ca.crt]" {
		return "ANY"
	}
	return text
}

// eventsOf returns how many events of a scenario say what.
func eventsOf(place string, p *record) difference.Fields {
	n := namesIn(place, p)
	counts := map[string]int{}
	for _, o := range p.live {
		if o.GetKind() == "Event" {
			counts[eventOf(n, o)]++
		}
	}
	fields := difference.Fields{}
	for event, count := range counts {
		fields[event] = fmt.Sprint(count)
	}
	return fields
}

// eventOf returns what an event is about and says, and its type and source.
func eventOf(n names, o *unstructured.Unstructured) string {
	field := func(path ...string) string {
		text, _, _ := unstructured.NestedString(o.Object, path...)
		return n.text(text)
	}
	component := field("source", "component")
	if component == "" {
		component = field("reportingComponent")
	}
	// Releases differ in whether the messages of some events begin with a capital letter.
	message := seconds.ReplaceAllString(field("message"), "DURATION")
	message = strings.ToLower(message[:min(1, len(message))]) + message[min(1, len(message)):]
	return field("involvedObject", "kind") + " " + field("involvedObject", "name") + ": " + field("reason") + ": " + message +
		" (" + field("type") + " from " + component + ")"
}

// ordering are the kinds whose objects are created and deleted in a certain order. Others
// do it at the same time as the node and the garbage collector.
var ordering = []string{"StatefulSet", "Deployment", "CronJob"}

// order returns the changes of the objects of each owner of these kinds. What
// happens to several one after another is listed by name: controllers do such things at
// the same time.
func order(place string, p *record) difference.Fields {
	n := namesIn(place, p)
	changes := slices.Clone(p.history)
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.revision, b.revision) })
	type run struct {
		what  string
		names []string
	}
	runs := map[string][]run{}
	for _, c := range changes {
		kind := c.object.GetKind()
		if kind == "Event" {
			continue
		}
		owner := metav1.GetControllerOf(c.object)
		if owner == nil || !slices.Contains(ordering, owner.Kind) {
			continue
		}
		group := owner.Kind + " " + n.text(owner.Name)
		list := runs[group]
		if len(list) == 0 || list[len(list)-1].what != c.what+" "+kind {
			list = append(list, run{what: c.what + " " + kind})
		}
		last := &list[len(list)-1]
		last.names = append(last.names, cmp.Or(n.anonymous[c.object.GetUID()], n.of[c.object.GetUID()]))
		runs[group] = list
	}
	fields := difference.Fields{}
	for group, list := range runs {
		var lines []string
		for _, r := range list {
			slices.Sort(r.names)
			lines = append(lines, r.what+" "+strings.Join(r.names, " "))
		}
		fields["objects of "+group] = strings.Join(lines, "; ")
	}
	return fields
}
