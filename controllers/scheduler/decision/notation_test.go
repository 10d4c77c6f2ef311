package decision

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"
	"k8s.io/utils/ptr"
)

// The notation of the scripts in testdata: a word for the kind, a name, and
// words about it. See testdata/notation.txt.

// fields splits a line into the words of one object: name, and the rest.
func fields(line string) (name string, words []string) {
	words = strings.Fields(line)
	return words[0], words[1:]
}

// parseNode reads: name [cpu=2] [memory=4Gi] [pods=110] [resource=n] [zone=z]
// [{label=value,...}] [taint=key=value:Effect] [cordoned] [image=name@100Mi]
// [declares=Feature,...].
func parseNode(line string) *corev1.Node {
	name, words := fields(line)
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name}}}
	n.Status.Allocatable = quantities("cpu=4", "memory=8Gi", "pods=110")
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case strings.HasPrefix(word, "{"):
			for key, value := range parseLabels(word) {
				n.Labels[key] = value
			}
		case key == "zone":
			n.Labels[corev1.LabelTopologyZone] = value
		case key == "nohost":
			delete(n.Labels, corev1.LabelHostname)
		case key == "taint":
			taint, effect, _ := strings.Cut(value, ":")
			key, value, _ := strings.Cut(taint, "=")
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
		case key == "declares":
			n.Status.DeclaredFeatures = strings.Split(value, ",")
		case key == "cordoned":
			n.Spec.Unschedulable = true
		case key == "image":
			image, size, _ := strings.Cut(value, "@")
			bytes := resource.MustParse(size)
			n.Status.Images = append(n.Status.Images, corev1.ContainerImage{Names: []string{image}, SizeBytes: bytes.Value()})
		default:
			for name, quantity := range quantities(word) {
				n.Status.Allocatable[name] = quantity
			}
		}
	}
	return n
}

// parsePod reads: name [ns=namespace] [on=node] [{label=value,...}], then what
// it requests (cpu=1 memory=1Gi resource=n, second:cpu=1, init:cpu=2, sidecar:cpu=1,
// overhead:cpu=1, pod:cpu=1), host=port, select={...}, in=node|node (affinity by
// name), affinity={...} and affinity~weight={...}, tolerate=..., near, away and
// spread (see parseTerm), owner=Kind/uid, claim=name, image=name, gated,
// deleting, nominated=node, priority=n, never (preempts others), started=second,
// group=name (of its PodGroup), restarts-all (containers if one exits), names=claim/request (of its extended resources).
func parsePod(line string) *corev1.Pod {
	name, words := fields(line)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	for _, word := range words {
		if word, ok := strings.CutPrefix(word, "ns="); ok {
			pod.Namespace = word
		}
	}
	pod.UID = types.UID(pod.Namespace + "/" + name)
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "main", Resources: requests()}}
	for _, word := range words {
		parsePodWord(pod, word)
	}
	return pod
}

func requests(words ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: quantities(words...)}
}

func parsePodWord(pod *corev1.Pod, word string) {
	spec := &pod.Spec
	main := &spec.Containers[0]
	if strings.HasPrefix(word, "{") {
		pod.Labels = parseLabels(word)
		return
	}
	if of, what, ok := strings.Cut(word, ":"); ok && strings.Contains(what, "=") && !strings.Contains(of, "=") {
		parsePartWord(spec, of, what)
		return
	}
	key, value, _ := strings.Cut(word, "=")
	key, weight, preferred := strings.Cut(key, "~")
	switch key {
	case "ns":
	case "on":
		spec.NodeName = value
	case "gated":
		spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "gate"}}
	case "deleting":
		pod.DeletionTimestamp = &metav1.Time{}
	case "ended":
		pod.Status.Phase = corev1.PodSucceeded
	case "priority":
		spec.Priority = ptr.To(int32(must(strconv.Atoi(value))))
	case "never":
		spec.PreemptionPolicy = ptr.To(corev1.PreemptNever)
	case "group":
		spec.SchedulingGroup = &corev1.PodSchedulingGroup{PodGroupName: &value}
	case "started":
		pod.Status.StartTime = ptr.To(metav1.Unix(int64(must(strconv.Atoi(value))), 0))
	case "nominated":
		pod.Status.NominatedNodeName = value
	case "image":
		main.Image = value
	case "host":
		main.Ports = append(main.Ports, parsePort(value))
	case "select":
		spec.NodeSelector = parseLabels(value)
	case "tolerate":
		spec.Tolerations = append(spec.Tolerations, parseToleration(value))
	case "owner":
		kind, uid, _ := strings.Cut(value, "/")
		pod.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: uid, UID: types.UID(uid), Controller: ptr.To(true)}}
	case "claim":
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: value, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: value}}})
	case "disk":
		disk, mode, _ := strings.Cut(value, ":")
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: disk, VolumeSource: corev1.VolumeSource{
			GCEPersistentDisk: &corev1.GCEPersistentDiskVolumeSource{PDName: disk, ReadOnly: mode == "ro"}}})
	case "restarts-all": // if it exits
		main.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyNever)
		main.RestartPolicyRules = []corev1.ContainerRestartRule{{Action: corev1.ContainerRestartRuleActionRestartAllContainers}}
	case "device":
		spec.ResourceClaims = append(spec.ResourceClaims, corev1.PodResourceClaim{Name: value, ResourceClaimName: &value})
	case "names":
		claim, request, _ := strings.Cut(value, "/")
		pod.Status.ExtendedResourceClaimStatus = &corev1.PodExtendedResourceClaimStatus{ResourceClaimName: claim, RequestMappings: []corev1.ContainerExtendedResourceRequest{
			{ContainerName: "c", ResourceName: "example.com/gpu", RequestName: request},
		}}
	case "made": // from a template, under a name
		podClaim, name, ok := strings.Cut(value, ":")
		spec.ResourceClaims = append(spec.ResourceClaims, corev1.PodResourceClaim{Name: podClaim, ResourceClaimTemplateName: &podClaim})
		if ok {
			pod.Status.ResourceClaimStatuses = append(pod.Status.ResourceClaimStatuses, corev1.PodResourceClaimStatus{Name: podClaim, ResourceClaimName: &name})
		}
	case "in":
		nodeAffinity(spec).RequiredDuringSchedulingIgnoredDuringExecution = namedAffinity(strings.Split(value, "|"))
	case "affinity":
		addNodeAffinity(nodeAffinity(spec), parseLabels(value), weight, preferred)
	case "near", "away":
		addPodAffinity(spec, key == "away", parseTerm(value), weight, preferred)
	case "spread":
		spec.TopologySpreadConstraints = append(spec.TopologySpreadConstraints, parseSpread(value, preferred))
	default:
		for name, quantity := range quantities(word) {
			main.Resources.Requests[name] = quantity
		}
	}
}

// parsePartWord reads the requests of another part of a pod than its main container.
func parsePartWord(spec *corev1.PodSpec, part, what string) {
	switch part {
	case "init":
		spec.InitContainers = append(spec.InitContainers, corev1.Container{Name: fmt.Sprintf("i%d", len(spec.InitContainers)), Resources: requests(what)})
	case "sidecar":
		spec.InitContainers = append(spec.InitContainers, corev1.Container{Name: fmt.Sprintf("s%d", len(spec.InitContainers)), Resources: requests(what), RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)})
	case "second":
		spec.Containers = append(spec.Containers, corev1.Container{Name: "d", Resources: requests(what)})
	case "overhead":
		spec.Overhead = quantities(what)
	case "pod":
		if spec.Resources == nil {
			spec.Resources = ptr.To(requests())
		}
		maps.Copy(spec.Resources.Requests, quantities(what))
	default:
		panic("unknown part " + part)
	}
}

func parsePort(word string) corev1.ContainerPort {
	word, ip, _ := strings.Cut(word, "@")
	number, protocol, _ := strings.Cut(word, "/")
	port := must(strconv.Atoi(number))
	return corev1.ContainerPort{HostPort: int32(port), HostIP: ip, Protocol: corev1.Protocol(protocol)}
}

// parseToleration reads key[=value][:effect], or * for everything.
func parseToleration(word string) corev1.Toleration {
	if word == "*" {
		return corev1.Toleration{Operator: corev1.TolerationOpExists}
	}
	word, effect, _ := strings.Cut(word, ":")
	key, value, equal := strings.Cut(word, "=")
	t := corev1.Toleration{Key: key, Value: value, Effect: corev1.TaintEffect(effect), Operator: corev1.TolerationOpExists}
	if equal {
		t.Operator = corev1.TolerationOpEqual
	}
	for sign, operator := range map[string]corev1.TolerationOperator{">": corev1.TolerationOpGt, "<": corev1.TolerationOpLt} {
		if key, value, ok := strings.Cut(word, sign); ok {
			t.Key, t.Value, t.Operator = key, value, operator
		}
	}
	return t
}

func nodeAffinity(spec *corev1.PodSpec) *corev1.NodeAffinity {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	return spec.Affinity.NodeAffinity
}

func namedAffinity(names []string) *corev1.NodeSelector {
	selector := &corev1.NodeSelector{}
	for _, name := range names {
		var term corev1.NodeSelectorTerm
		for _, name := range strings.Split(name, "&") {
			term.MatchFields = append(term.MatchFields, corev1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}})
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
	}
	return selector
}

func addNodeAffinity(affinity *corev1.NodeAffinity, set map[string]string, weight string, preferred bool) {
	var term corev1.NodeSelectorTerm
	for key, value := range set {
		term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}})
	}
	if preferred {
		affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(affinity.PreferredDuringSchedulingIgnoredDuringExecution,
			corev1.PreferredSchedulingTerm{Weight: int32(must(strconv.Atoi(weight))), Preference: term})
		return
	}
	if affinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		affinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{}
	}
	required := affinity.RequiredDuringSchedulingIgnoredDuringExecution
	required.NodeSelectorTerms = append(required.NodeSelectorTerms, term)
}

func addPodAffinity(spec *corev1.PodSpec, anti bool, term corev1.PodAffinityTerm, weight string, preferred bool) {
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	a := spec.Affinity
	if a.PodAffinity == nil {
		a.PodAffinity = &corev1.PodAffinity{}
	}
	if a.PodAntiAffinity == nil {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{}
	}
	required := &a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	soft := &a.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	if anti {
		required = &a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		soft = &a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
	}
	if preferred {
		*soft = append(*soft, corev1.WeightedPodAffinityTerm{Weight: int32(must(strconv.Atoi(weight))), PodAffinityTerm: term})
	} else {
		*required = append(*required, term)
	}
}

// parseTerm reads {label=value,...}/key[@namespace|...][@{label=value,...}]
// where key is host, zone or a label of nodes.
func parseTerm(word string) corev1.PodAffinityTerm {
	word, namespaces, chosen := strings.Cut(word, "@")
	set, key, _ := strings.Cut(word, "}/")
	term := corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{MatchLabels: parseLabels(set + "}")}, TopologyKey: topologyKey(key)}
	switch {
	case !chosen:
	case strings.HasPrefix(namespaces, "{"):
		term.NamespaceSelector = &metav1.LabelSelector{MatchLabels: parseLabels(namespaces)}
	default:
		term.Namespaces = strings.Split(namespaces, "|")
	}
	return term
}

// parseSpread reads {label=value,...}/key/maxSkew, followed by any of
// [/min=domains] [/anywhere] (nodeAffinityPolicy Ignore) [/tolerated]
// (nodeTaintsPolicy Honor) [/by=label] (matchLabelKeys).
func parseSpread(word string, soft bool) corev1.TopologySpreadConstraint {
	set, rest, _ := strings.Cut(word, "}/")
	words := strings.Split(rest, "/")
	c := corev1.TopologySpreadConstraint{
		LabelSelector: &metav1.LabelSelector{MatchLabels: parseLabels(set + "}")},
		TopologyKey:   topologyKey(words[0]), MaxSkew: int32(must(strconv.Atoi(words[1]))),
		WhenUnsatisfiable: corev1.DoNotSchedule,
	}
	if soft {
		c.WhenUnsatisfiable = corev1.ScheduleAnyway
	}
	for _, word := range words[2:] {
		switch key, value, _ := strings.Cut(word, "="); key {
		case "min":
			c.MinDomains = ptr.To(int32(must(strconv.Atoi(value))))
		case "anywhere":
			c.NodeAffinityPolicy = ptr.To(corev1.NodeInclusionPolicyIgnore)
		case "tolerated":
			c.NodeTaintsPolicy = ptr.To(corev1.NodeInclusionPolicyHonor)
		case "by":
			c.MatchLabelKeys = append(c.MatchLabelKeys, value)
		}
	}
	return c
}

func topologyKey(key string) string {
	switch key {
	case "host":
		return corev1.LabelHostname
	case "zone":
		return corev1.LabelTopologyZone
	}
	return key
}

// parseLabels reads {key=value,...}.
func parseLabels(word string) map[string]string {
	set := map[string]string{}
	for _, pair := range strings.Split(strings.Trim(word, "{}"), ",") {
		if key, value, ok := strings.Cut(pair, "="); ok {
			set[key] = value
		}
	}
	return set
}

func quantities(words ...string) corev1.ResourceList {
	list := corev1.ResourceList{}
	for _, word := range words {
		name, amount, ok := strings.Cut(word, "=")
		if !ok {
			panic("unknown word " + word)
		}
		list[corev1.ResourceName(name)] = resource.MustParse(amount)
	}
	return list
}

// parseClaim reads: name [ns=namespace] [class=name] [volume=name (bound)]
// [size=1Gi] [mode=ReadWriteOnce] [selected=node] [deleting].
func parseClaim(line string) *corev1.PersistentVolumeClaim {
	name, words := fields(line)
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{}}}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "ns":
			c.Namespace = value
		case "class":
			c.Spec.StorageClassName = &value
		case "volume":
			c.Spec.VolumeName, c.Annotations[volume.AnnBindCompleted] = value, "yes"
		case "size":
			c.Spec.Resources.Requests = quantities("storage=" + value)
		case "mode":
			c.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(value)}
		case "selected":
			c.Annotations[volume.AnnSelectedNode] = value
		case "deleting":
			c.DeletionTimestamp = &metav1.Time{}
		default:
			panic("unknown word " + word)
		}
	}
	return c
}

// parseVolume reads: name [class=name] [size=1Gi] [{label=value}] [on=node]
// (node affinity by host label) [in=zone (by zone label)] [mode=ReadWriteOnce] [csi=driver].
func parseVolume(line string) *corev1.PersistentVolume {
	name, words := fields(line)
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable}}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case strings.HasPrefix(word, "{"):
			pv.Labels = parseLabels(word)
		case key == "class":
			pv.Spec.StorageClassName = value
		case key == "size":
			pv.Spec.Capacity = quantities("storage=" + value)
		case key == "csi":
			pv.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: value, VolumeHandle: name}
		case key == "mode":
			pv.Spec.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.PersistentVolumeAccessMode(value)}
		case key == "on":
			pv.Spec.NodeAffinity = volumeAffinity(corev1.LabelHostname, value)
		case key == "in":
			pv.Spec.NodeAffinity = volumeAffinity(corev1.LabelTopologyZone, value)
		default:
			panic("unknown word " + word)
		}
	}
	return pv
}

func volumeAffinity(key, value string) *corev1.VolumeNodeAffinity {
	return &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}}}}
}

// parseCapacity reads: name class=C size=S [max=S] [on=node]: what a driver can
// provision.
func parseCapacity(line string) *storagev1.CSIStorageCapacity {
	name, words := fields(line)
	c := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "class":
			c.StorageClassName = value
		case "size":
			c.Capacity = ptr.To(resource.MustParse(value))
		case "max":
			c.MaximumVolumeSize = ptr.To(resource.MustParse(value))
		case "on":
			c.NodeTopology = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelHostname: value}}
		default:
			panic("unknown word " + word)
		}
	}
	return c
}

// parseClass reads: name [provisioner] [waits] [zone=z (allowed topology)].
func parseClass(line string) *storagev1.StorageClass {
	name, words := fields(line)
	c := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: volume.NotSupportedProvisioner, VolumeBindingMode: ptr.To(storagev1.VolumeBindingImmediate)}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "waits":
			c.VolumeBindingMode = ptr.To(storagev1.VolumeBindingWaitForFirstConsumer)
		case "provisioner":
			c.Provisioner = value
		case "zone":
			c.AllowedTopologies = []corev1.TopologySelectorTerm{{MatchLabelExpressions: []corev1.TopologySelectorLabelRequirement{{Key: corev1.LabelTopologyZone, Values: []string{value}}}}}
		default:
			panic("unknown word " + word)
		}
	}
	return c
}

// parseBudget reads: name {label=value} [allowed=n] [disrupted=pod].
func parseBudget(line string) *policyv1.PodDisruptionBudget {
	name, words := fields(line)
	b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch {
		case strings.HasPrefix(word, "{"):
			b.Spec.Selector = &metav1.LabelSelector{MatchLabels: parseLabels(word)}
		case key == "allowed":
			b.Status.DisruptionsAllowed = int32(must(strconv.Atoi(value)))
		case key == "disrupted":
			b.Status.DisruptedPods = map[string]metav1.Time{value: {}}
		default:
			panic("unknown word " + word)
		}
	}
	return b
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(fmt.Sprint("script: ", err))
	}
	return value
}
