// Package apiclient owns the agent's connection to the API server: its clients,
// their rate limits and content types, and the errors of client certificates.
package apiclient
