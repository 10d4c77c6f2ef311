package decision

// matchesPodAffinity filters by the pod's required affinity and anti-affinity to
// other pods, and by the anti-affinity of other pods to it.
func matchesPodAffinity(s *Snapshot, r *request) rule {
	if r.termsErr != nil {
		return rule{podReason: r.termsErr.Error()}
	}
	wanted := s.wantedDomains(r)
	var avoided, forbidden []domains
	for _, t := range r.terms.antiAffinity {
		avoided = append(avoided, s.countOf(selection{terms: []*term{t}}).in(t.topologyKey))
	}
	for _, h := range s.boundTermsMatching(r.pod.Namespace, r.pod.Labels) {
		if h.forbids {
			forbidden = append(forbidden, h.in(h.topologyKey))
		}
	}
	if len(wanted.all) == 0 && len(avoided) == 0 && len(forbidden) == 0 {
		return rule{}
	}
	return rule{check: func(n *node, why []string) []string {
		switch {
		case !wanted.include(n):
			why = append(why, missingPodAffinity)
		case inAny(n, avoided):
			why = append(why, "node(s) didn't match pod anti-affinity rules")
		case inAny(n, forbidden):
			why = append(why, "node(s) didn't satisfy existing pods anti-affinity rules")
		}
		return why
	}}
}

// inAny reports whether a node is in a domain with pods.
func inAny(n *node, all []domains) bool {
	for i := range all {
		if value, ok := n.label(all[i].key); ok && all[i].values[value] > 0 {
			return true
		}
	}
	return false
}

// wantedDomains are the domains that a pod's required affinity selects.
type wantedDomains struct {
	all []domains
	// anywhere accepts all nodes that have the labels: the pod matches its own terms
	// and no other pod does, so it is the first of its group.
	anywhere bool
}

// wantedDomains counts the pods that match all of a pod's required affinity terms.
func (s *Snapshot) wantedDomains(r *request) wantedDomains {
	var w wantedDomains
	if len(r.terms.affinity) == 0 {
		return w
	}
	pods := s.countOf(selection{terms: r.terms.affinity})
	w.anywhere = true
	for _, t := range r.terms.affinity {
		there := pods.in(t.topologyKey)
		w.all = append(w.all, there)
		if there.total > 0 || !t.matches(s, r.pod.Namespace, r.pod.Labels) {
			w.anywhere = false
		}
	}
	return w
}

func (w *wantedDomains) include(n *node) bool {
	for i := range w.all {
		value, ok := n.label(w.all[i].key)
		if !ok || !w.anywhere && w.all[i].values[value] == 0 {
			return false
		}
	}
	return true
}

// preferredPodAffinity adds the weights of preferred affinity and subtracts those of
// preferred anti-affinity, both of the pod and of the pods in the node's domains.
func preferredPodAffinity(s *Snapshot, r *request, nodes []*node, scores []int64) bool {
	if r.profile.IgnorePreferred && len(r.terms.preferred) == 0 {
		return false
	}
	type liking struct {
		domains
		weight int64
	}
	var likings []liking
	add := func(pods domains, weight int64) {
		if pods.total > 0 && weight != 0 {
			likings = append(likings, liking{pods, weight})
		}
	}
	for _, t := range r.terms.preferred {
		add(s.countOf(selection{terms: []*term{t.term}}).in(t.topologyKey), t.weight)
	}
	for _, h := range s.boundTermsMatching(r.pod.Namespace, r.pod.Labels) {
		weight := h.weight
		if h.required {
			weight = r.profile.RequiredWeight
		}
		add(h.in(h.topologyKey), weight)
	}
	if len(likings) == 0 {
		return false
	}
	for i, n := range nodes {
		for j := range likings {
			if value, ok := n.label(likings[j].key); ok {
				scores[i] += likings[j].weight * int64(likings[j].values[value])
			}
		}
	}
	scaleToRange(scores)
	return true
}
