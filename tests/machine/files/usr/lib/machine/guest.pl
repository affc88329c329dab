#!/usr/bin/perl
# Runs the commands that a test sends on the machine's first serial line, one at a time (tests/machine/guest.py has the
# other end). Only perl-base: a bare Debian has no Python.
#   received: run ID SECONDS HEX       HEX: the arguments, separated by NUL
#   sent:     boot BOOT_ID             once for each start of this program
#             alive ID                 every 2 s while the command runs
#             done ID CODE HEX HEX     exit code (negative: signal), standard output and standard error
use strict;
use warnings;
use POSIX qw(WNOHANG);

my $LINE = '/dev/ttyS0';
my $MAX_OUTPUT_BYTES = 4 << 20;

open my $line, '+<', $LINE or die "$LINE: $!";
binmode $line;
open STDIN, '<&', $line or die "$LINE: $!";
system('stty', 'raw', '-echo') == 0 or die "$LINE is no terminal";

sub send_line {
    my $rest = "$_[0]\n";
    while (length $rest) {
        my $written = syswrite $line, $rest;
        if (defined $written) { substr $rest, 0, $written, ''; next }
        die "$LINE: $!" unless $!{EINTR};
    }
}

# The exit code, standard output and standard error of a command that is killed after so many seconds.
sub run_command {
    my ($id, $seconds, @command) = @_;
    pipe my $out, my $out_end or die "pipe: $!";
    pipe my $err, my $err_end or die "pipe: $!";
    my $child = fork;
    defined $child or die "fork: $!";
    if (!$child) {
        POSIX::setsid();
        open STDIN, '<', '/dev/null';
        open STDOUT, '>&', $out_end;
        open STDERR, '>&', $err_end;
        no warnings 'exec';
        exec { $command[0] } @command or do { print STDERR "$command[0]: $!\n"; POSIX::_exit(127) };
    }
    close $out_end;
    close $err_end;
    my ($deadline, $told, $status) = (time + $seconds, time, undef);
    my %text = (1 => '', 2 => '');
    my %open = (1 => $out, 2 => $err);
    my $read_all = 0;
    until ($read_all) {
        my $ready = '';
        vec($ready, fileno($_), 1) = 1 for values %open;
        # What has ended may have left a daemon that holds the pipes open: then only what is there is read.
        my $found = select $ready, undef, undef, defined $status ? 0 : 0.05;
        for my $number ($found > 0 ? keys %open : ()) {
            next unless vec $ready, fileno($open{$number}), 1;
            my $count = sysread $open{$number}, my $chunk, 65536;
            if (!$count) { delete $open{$number}; next }
            $text{$number} .= $chunk if length $text{$number} < $MAX_OUTPUT_BYTES;
        }
        $read_all = defined $status && (!%open || $found <= 0);
        if (!defined $status) {
            select undef, undef, undef, 0.05 unless %open;
            $status = $? if waitpid($child, WNOHANG) == $child;
            kill 'KILL', -$child if time > $deadline;
            if (time - $told >= 2) { send_line("alive $id"); $told = time }
        }
    }
    return ($status & 127 ? -($status & 127) : $status >> 8, $text{1}, $text{2});
}

open my $file, '<', '/proc/sys/kernel/random/boot_id' or die $!;
chomp(my $boot_id = <$file>);
send_line("boot $boot_id");
while (defined(my $request = <$line>)) {
    my ($verb, $id, $seconds, $hex) = split ' ', $request;
    next unless defined $hex && $verb eq 'run';
    my ($code, $out, $err) = run_command($id, $seconds, split /\0/, pack('H*', $hex), -1);
    send_line("done $id $code x" . unpack('H*', $out) . ' x' . unpack('H*', $err));
}
