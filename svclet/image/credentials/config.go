package credentials

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
)

// Config is a docker configuration: logins by the registry that they are for.
type Config map[string]Login

// registries are the keys, in order.
func (c Config) registries() []string { return slices.Sorted(maps.Keys(c)) }

// errUnreadable says nothing of what was read, for that may be a secret.
var errUnreadable = errors.New("not a docker configuration: invalid JSON, or an auth field that is not base64(username:password)")

// ParseConfigJSON reads what docker keeps in config.json and pull secrets have
// in .dockerconfigjson.
func ParseConfigJSON(data []byte) (Config, error) {
	var file struct {
		Auths Config `json:"auths"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, errUnreadable
	}
	return file.Auths, nil
}

// ParseConfig reads what docker kept in .dockercfg before version 1.7.
func ParseConfig(data []byte) (Config, error) {
	var config Config
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, errUnreadable
	}
	return config, nil
}

// UnmarshalJSON reads a login; its auth field, if there is one, takes
// precedence over username and password.
func (l *Login) UnmarshalJSON(data []byte) error {
	var entry struct {
		Username string `json:"username"`
		Password string `json:"password"`
		Auth     string `json:"auth"`
	}
	if err := json.Unmarshal(data, &entry); err != nil {
		return err
	}
	l.Username, l.Password = entry.Username, entry.Password
	if entry.Auth == "" {
		return nil
	}
	encoding := base64.RawStdEncoding
	if strings.HasSuffix(strings.TrimSpace(entry.Auth), "=") {
		encoding = base64.StdEncoding
	}
	decoded, err := encoding.DecodeString(entry.Auth)
	if err != nil {
		return err
	}
	username, password, ok := strings.Cut(string(decoded), ":")
	if !ok {
		return errUnreadable
	}
	l.Username, l.Password = username, password
	return nil
}
