package userns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
)

// Block is the unit of what pods get: a user of the machine whose ID has the same upper
// 16 bits as that of another one may belong to the same pod.
const Block = 65536

// owner is the user whose subordinate IDs are those of pods, if the machine has it.
const owner = "svclet"

// Range is a range of IDs of users and of groups.
type Range struct{ First, Length int64 }

// ReadRange returns the IDs that pods get: the subordinate IDs of the user svclet, if
// the machine has that user and the program getsubids, and otherwise enough IDs for all
// pods, after those of the machine itself.
func ReadRange(ctx context.Context, maxPods int32, perPod int64) (Range, error) {
	all := Range{First: perPod, Length: perPod * int64(maxPods)}
	_, err := user.Lookup(owner)
	if err == nil {
		_, err = exec.LookPath("getsubids")
	}
	var unknown user.UnknownUserError
	switch {
	case errors.As(err, &unknown) || errors.Is(err, exec.ErrNotFound):
		return all, all.check(maxPods, perPod)
	case err != nil:
		return Range{}, fmt.Errorf("the users of pods: %w", err)
	}
	users, err := exec.CommandContext(ctx, "getsubids", owner).Output()
	if err != nil {
		return Range{}, fmt.Errorf("getsubids %s: %w", owner, err)
	}
	groups, err := exec.CommandContext(ctx, "getsubids", "-g", owner).Output()
	if err != nil {
		return Range{}, fmt.Errorf("getsubids -g %s: %w", owner, err)
	}
	all, err = parseSubIDs(string(users), string(groups))
	if err != nil {
		return Range{}, err
	}
	return all, all.check(maxPods, perPod)
}

// parseSubIDs reads the output of getsubids for users and for groups: one line each,
// "0: svclet 65536 7208960".
func parseSubIDs(users, groups string) (Range, error) {
	if users != groups {
		return Range{}, fmt.Errorf("the subordinate users and groups of %s differ: make its lines in /etc/subuid and /etc/subgid equal", owner)
	}
	lines := strings.Split(strings.TrimSpace(users), "\n")
	if len(lines) != 1 {
		return Range{}, fmt.Errorf("%s has %d ranges of subordinate users: must have one in /etc/subuid", owner, len(lines))
	}
	fields := strings.Fields(lines[0])
	if len(fields) != 4 {
		return Range{}, fmt.Errorf("getsubids printed %q: must be a number, a user, the first ID and a count", lines[0])
	}
	var r Range
	var errs [2]error
	r.First, errs[0] = strconv.ParseInt(fields[2], 10, 64)
	r.Length, errs[1] = strconv.ParseInt(fields[3], 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return Range{}, fmt.Errorf("getsubids printed %q: %w", lines[0], err)
	}
	return r, nil
}

// check returns an error if the range cannot be divided between pods.
func (r Range) check(maxPods int32, perPod int64) error {
	switch {
	case perPod <= 0 || perPod%Block != 0:
		return fmt.Errorf("userNamespaces.idsPerPod is %d: must be a positive multiple of %d", perPod, Block)
	case r.First < perPod:
		return fmt.Errorf("the first subordinate user of %s is %d: must be at least %d (userNamespaces.idsPerPod)", owner, r.First, perPod)
	case r.First%Block != 0 || r.Length%Block != 0:
		return fmt.Errorf("the subordinate users of %s are %d from %d: both must be multiples of %d", owner, r.Length, r.First, Block)
	case r.Length/perPod < int64(maxPods):
		return fmt.Errorf("%d subordinate users of %s are not enough for %d pods (maxPods) of %d", r.Length, owner, maxPods, perPod)
	case r.First+r.Length-1 > math.MaxUint32:
		return fmt.Errorf("%d users for each of %d pods (maxPods) are more than there are: lower userNamespaces.idsPerPod", perPod, maxPods)
	}
	return nil
}
