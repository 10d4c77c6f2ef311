// Package model owns the sequential specification of an object of the API, and checks
// concurrent requests against it with porcupine.
package model

// Verb is what a request does with an object.
type Verb string

const (
	Get    Verb = "get"
	Create Verb = "create"
	Change Verb = "change" // update, or a patch that does not create
	Apply  Verb = "apply"  // changes or creates
	Delete Verb = "delete"
	Remove Verb = "remove" // deletes the object if it exists: a part of deletecollection
)

// Request is a request for one object. Each write has a value of its own.
type Request struct {
	Verb  Verb
	Key   string
	Value string // that is written
	// Preconditions: the object has this version, UID, or value. Zero values are none.
	IfVersion uint64
	IfUID     string
	IfValue   string
}

// Outcome is the result of a request.
type Outcome string

const (
	// Unknown is the outcome of a write without a response, or with one that leaves
	// open whether it has happened.
	Unknown      Outcome = "unknown"
	OK           Outcome = "ok"
	NotFound     Outcome = "not found"
	Exists       Outcome = "already exists"
	Conflict     Outcome = "conflict"
	OtherContent Outcome = "another value" // IfValue does not hold
)

// Response is a request's result. Version, UID and Value are the object's, if the
// outcome is OK; a delete returns the UID only.
type Response struct {
	Outcome Outcome
	Version uint64
	UID     string
	Value   string
	Created bool // by an apply
}

// state is a state of one object. Version and UID are unset after a write with an
// unknown outcome, until a response has them.
type state struct {
	exists  bool
	version uint64
	uid     string
	value   string
	// highest is the highest version so far of all objects with this key.
	highest uint64
}

// meets reports whether a write's preconditions certainly hold, and whether they can.
func (s state) meets(r Request) (certain, possible bool) {
	switch r.Verb {
	case Create:
		return !s.exists, !s.exists
	case Apply:
		return true, true
	}
	if !s.exists || r.IfValue != "" && r.IfValue != s.value {
		return false, false
	}
	certain = (r.IfVersion == 0 || r.IfVersion == s.version) && (r.IfUID == "" || r.IfUID == s.uid)
	possible = (r.IfVersion == 0 || r.IfVersion == s.version || s.version == 0 && r.IfVersion > s.highest) &&
		(r.IfUID == "" || r.IfUID == s.uid || s.uid == "")
	return certain, possible
}

// after returns the state after a write, of which version and uid may be unset.
func (s state) after(r Request, version uint64, uid string) state {
	if r.Verb == Delete || r.Verb == Remove {
		return state{highest: s.highest}
	}
	if s.exists && uid == "" {
		uid = s.uid
	}
	return state{exists: true, version: version, uid: uid, value: r.Value, highest: max(s.highest, version)}
}

// step returns the states in which the object can be after a request with this
// response. There are none if the response is wrong in this state.
func step(s state, req Request, resp Response) []state {
	certain, possible := s.meets(req)
	same := []state{s}
	if req.Verb == Get {
		return read(s, resp)
	}
	switch resp.Outcome {
	case OK:
		return accepted(s, req, resp, possible)
	case Unknown:
		// porcupine orders a write that has not happened after all others.
		switch {
		case certain:
			return []state{s.after(req, 0, "")}
		case possible:
			return []state{s, s.after(req, 0, "")}
		}
		return same
	case NotFound:
		if s.exists || req.Verb == Create || req.Verb == Apply {
			return nil
		}
		return same
	case Exists:
		if certain || req.Verb != Create {
			return nil
		}
		return same
	case Conflict:
		// A patch without preconditions conflicts with too many other writers.
		unconditional := (req.Verb == Change || req.Verb == Apply) && req.IfVersion == 0 && req.IfUID == ""
		if unconditional || s.exists && !certain {
			return same
		}
	case OtherContent:
		if req.IfValue != "" && s.exists && s.value != req.IfValue {
			return same
		}
	}
	return nil
}

// accepted is step of a write that has happened.
func accepted(s state, req Request, resp Response, possible bool) []state {
	if req.Verb == Remove { // the object may be gone already
		return []state{{highest: s.highest}}
	}
	if !possible || s.exists && s.uid != "" && resp.UID != "" && s.uid != resp.UID {
		return nil
	}
	if req.Verb == Delete {
		return []state{s.after(req, 0, "")}
	}
	if resp.Version <= s.highest || resp.Value != req.Value || req.Verb == Apply && resp.Created == s.exists {
		return nil
	}
	return []state{s.after(req, resp.Version, resp.UID)}
}

// read is step of a get.
func read(s state, resp Response) []state {
	switch {
	case resp.Outcome == NotFound && !s.exists:
		return []state{s}
	case resp.Outcome != OK || !s.exists || s.value != resp.Value,
		s.version != 0 && s.version != resp.Version,
		s.version == 0 && resp.Version <= s.highest,
		s.uid != "" && s.uid != resp.UID:
		return nil
	}
	s.version, s.uid, s.highest = resp.Version, resp.UID, resp.Version
	return []state{s}
}
