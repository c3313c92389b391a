//! The command line of the estimator of available bandwidth.  Every answer is a line of JSON.

mod command;

use std::env;
use std::process::ExitCode;

use command::{estimate, listen, pacing_sweep, sending};

const USAGE: &str = "\
Estimates the available bandwidth of a path between two machines.  Each line of the output is a JSON object.

usage: bandwidth listen            stamp what senders send here, until it is told to end
       bandwidth estimate HOST     estimate what the path to the listener on HOST carries beside what it carries now
       bandwidth stream HOST       send one stream there and tell how it went
       bandwidth pacing-sweep [HOST]     find the highest rate that this host paces, on its loopback or on the path to HOST
       bandwidth cross-traffic ADDRESS:PORT --rate BPS  send UDP packets there until it is told to end
       bandwidth --version

listen:    --address A (0.0.0.0) --port P (8763; UDP, too) --token HEX (32 digits that senders must give)
           --stamps kernel|program --clock C (of the program's stamps) --cpu N --fifo PRIORITY --sessions N
HOST:      --port P --token HEX (or in VIRTGAUGE_BANDWIDTH_TOKEN)
sending:   --clock system|gettimeofday|hptime --sleep system|usleep|hptime --margin-us US (spin so long before a
           deadline; learnt when not given) --method send|sendmmsg|gso --cpu N --fifo PRIORITY --packet-bytes B
estimate:  --estimator kite2|yaz-original --settings JSON --lowest BPS --highest BPS --instants N (so many searches)
           --rate BPS (refuse unless this host paces so much) --calibration loopback|none
stream:    --rate BPS --packets N --burst N
pacing sweep:    --methods send,sendmmsg,gso --duration-ms MS --rate BPS (fail unless this host paces so much)
           --interface NAME --destination-mac MAC (adds af_xdp and xdp_live on that link, in a namespace of its own)
traffic:   --kind constant|poisson --packet-bytes B --seconds S --cpu N --fifo PRIORITY --seed N

Rates are in bit/s of IP packets; packets are as long as their IP packet.

exit codes: 0 done; 1 not possible, the last line says why; 2 wrong usage
";

fn main() -> ExitCode {
    let words: Vec<String> = env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    let Some((command, words)) = words.split_first() else {
        eprint!("{USAGE}");
        return ExitCode::from(command::WRONG_USAGE);
    };
    let words = words.to_vec();
    let ended = match command.as_str() {
        "listen" => listen::run(words),
        "estimate" => estimate::run(words),
        "stream" => sending::stream(words),
        "cross-traffic" => sending::cross_traffic(words),
        "pacing-sweep" => pacing_sweep::run(words),
        "--version" => {
            println!("bandwidth {} (protocol {})", bandwidth::control::TOOL_VERSION, bandwidth::control::PROTOCOL);
            Ok(())
        }
        "--help" => {
            print!("{USAGE}");
            Ok(())
        }
        other => Err(command::Error::Usage(format!("there is no command {other:?}"))),
    };
    command::end(ended, USAGE)
}
